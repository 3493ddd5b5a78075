// Keeps the page up to date, without losing what is open, focused or typed, and sends its forms.

const LEAST_PAUSE = 2000; // milliseconds
const PATIENCE = 60_000;
const main = document.getElementById("main");
const connection = document.getElementById("connection");
const news = document.getElementById("news");
const question = document.getElementById("question");
let timer;
let latest = 0; // the number of the request whose response counts
let lastAnnouncement = main.dataset.news;
let asOf = ""; // when the last answer came

function same(one, other) {
  return one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key;
}

/** Gives an element the attributes of another one; whether it is open is the reader's choice. */
function updateAttributes(element, wanted) {
  for (const { name } of [...element.attributes]) {
    if (name !== "open" && !wanted.hasAttribute(name)) element.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  }
}

/** Makes an element like another one, in place: what stays keeps its focus and its state. */
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

/** Says that the page is not up to date: what it shows is as of the last answer. */
function lost(reason) {
  connection.className = "lost";
  connection.textContent = asOf ? `${reason} · as of ${asOf}` : reason;
  say(reason);
}

/** Says that the page is up to date, and what is wrong with what it shows. */
function live() {
  connection.className = main.dataset.alarm ? "lost" : "";
  connection.textContent = [main.dataset.alarm || "Live", asOf].filter(Boolean).join(" · ");
}

/** Asks for a page and shows it; the page that is shown stays if there is no other. */
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
      // A disabled button has lost its focus to the body.
      const gone = !focused.isConnected || (options.method && focused === document.body);
      (gone ? main : focused).focus({ preventScroll: true });
    }
    if (connection.className === "lost") say("connected again");
    else if (main.dataset.news !== lastAnnouncement) say(main.dataset.news);
    lastAnnouncement = main.dataset.news;
    asOf = `${new Date().toISOString().slice(11, 19)}Z`;
    live();
  } catch {
    if (mine === latest) lost("No connection: is xorack web still running?");
  }
}

/** Refreshes the page, and again later: reads take a tenth of the time at most. */
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
      // The event of an earlier question may come late.
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
  // A button named action hides the form's property.
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

/** A slash begins a search, unless it is typed into a field. */
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
