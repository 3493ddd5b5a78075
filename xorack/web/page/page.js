// Refreshes the page, keeps open parts, the focus and typed text, and sends the forms.

const LEAST_PAUSE = 2000; // milliseconds
const PATIENCE = 60_000;
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const news = document.getElementById("news");
const question = document.getElementById("question");
let timer;
let latest = 0; // the number of the request whose response counts
let lastAnnouncement = main.dataset.news;
let asOf = ""; // the time of the last answer

function same(one, other) {
  return one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;
}

/** Copies the attributes of another element. Only the reader opens and closes an element. */
function updateAttributes(element, wanted) {
  for (const { name } of [...element.attributes]) {
    if (name !== "open" && !wanted.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}

/** Changes an element into another one in place. Parts that stay keep their focus and state. */
function update(element, wanted) {
  updateAttributes(element, wanted);
  let next = element.firstChild;
  for (const child of wanted.childNodes) {
    let old = next;
    while (old && !same(old, child)) old = old.nextSibling;
    if (!old) {
      element.insertBefore(document.importNode(child, true), next);
      continue;
    }
    if (old === next) next = next.nextSibling;
    else element.insertBefore(old, next);
    if (old.nodeType === Node.ELEMENT_NODE) update(old, child);
    else if (old.data !== child.data) old.data = child.data;
  }
  while (next) {
    const rest = next.nextSibling;
    next.remove();
    next = rest;
  }
}

function say(text) {
  if (news.textContent !== text) news.textContent = text;
}

/** Says that the page is not up to date, and gives the time of the last answer. */
function lost(reason) {
  connection.className = "lost";
  connection.textContent = asOf ? `${reason} · as of ${asOf}` : reason;
  say(reason);
}

/** Says that the page is up to date, and shows the problems that it reports. */
function live() {
  connection.className = main.dataset.alarm ? "lost" : "";
  connection.textContent = [main.dataset.alarm || "Live", asOf].filter(Boolean).join(" · ");
}

/** Requests a page and shows it. If there is no new page, the current one stays. */
async function show(address, options) {
  const mine = ++latest;
  try {
    const response = await fetch(address, options);
    const text = await response.text();
    if (mine !== latest) return;
    const page = new DOMParser().parseFromString(text, "text/html");
    if (!response.ok) {
      lost(
        page.getElementById("problem")?.textContent ||
          "xorack web was started again: open its new address",
      );
      return;
    }
    if (response.status !== 204) {
      const focused = document.activeElement;
      update(main, page.getElementById("main"));
      for (const part of ["header nav", "#queue"])
        update(document.querySelector(part), page.querySelector(part));
      // When a button is disabled, the body gets its focus.
      const gone = !focused.isConnected || (options.method && focused === document.body);
      (gone ? main : focused).focus({ preventScroll: true });
    }
    if (connection.className === "lost") say("connected again");
    else if (main.dataset.news !== lastAnnouncement) say(main.dataset.news);
    lastAnnouncement = main.dataset.news;
    asOf = `${new Date().toISOString().slice(11, 19)}Z`;
    live();
  } catch {
    if (mine === latest) lost("No connection. Is xorack web still running?");
  }
}

/** Refreshes the page repeatedly. The pauses are long, so that reads take a tenth of the time. */
async function refresh() {
  clearTimeout(timer);
  if (document.hidden) return;
  const known = main.dataset.total;
  const began = performance.now();
  const headers = known === undefined ? {} : { "X-Known": known };
  await show(location.href, { headers, signal: AbortSignal.timeout(PATIENCE) });
  wait(Math.min(PATIENCE, 9 * (performance.now() - began)));
}

function wait(pause) {
  clearTimeout(timer);
  timer = setTimeout(refresh, Math.max(LEAST_PAUSE, pause));
}

function confirmed(text, verb) {
  question.querySelector("p").textContent = text;
  question.querySelector(".danger").textContent = verb;
  question.returnValue = "";
  question.showModal();
  return new Promise((resolve) => {
    question.onclose = () => {
      // The event of an earlier question may arrive late.
      if (!question.open) resolve(question.returnValue === "yes");
    };
  });
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const button = event.submitter;
  if (form.getAttribute("method") !== "post") return;
  event.preventDefault();
  if (button.dataset.question && !(await confirmed(button.dataset.question, button.textContent)))
    return;
  clearTimeout(timer);
  const body = new URLSearchParams(new FormData(form, button));
  for (const each of form.querySelectorAll("button")) each.disabled = true;
  button.setAttribute("aria-busy", "true");
  // A button with the name action would hide the form's property.
  await show(form.getAttribute("action"), { method: "POST", body });
  for (const each of form.querySelectorAll("button")) each.disabled = false;
  button.removeAttribute("aria-busy");
  wait(LEAST_PAUSE);
});

/** Opens the message that the address names. */
function reveal() {
  const named =
    location.hash &&
    document.querySelector(`details[data-key="${CSS.escape(location.hash.slice(1))}"]`);
  if (named) {
    named.open = true;
    named.scrollIntoView();
  }
}

/** Makes a slash begin a search, unless it is typed into a field. */
addEventListener("keydown", (event) => {
  const search = document.querySelector("input[type=search]");
  const typing = document.activeElement.matches("input, textarea, select");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing || !search)
    return;
  event.preventDefault();
  search.focus();
  search.select();
});

reveal();
addEventListener("hashchange", reveal);
document.addEventListener("visibilitychange", refresh);
wait(LEAST_PAUSE);
live();
