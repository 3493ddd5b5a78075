"""An acker in a stack of your own: with your key, your bus, your network, and your subscribers.

``pip install 'xorack[cdk]'``, then ``cdk deploy``.
"""

from __future__ import annotations

from xorack.cdk import Acker, Network, Settings  # isort: skip - before aws_cdk: it finds node

from aws_cdk import (
    App,
    CfnOutput,
    Duration,
    Stack,
    aws_ec2,
    aws_events,
    aws_events_targets,
    aws_iam,
    aws_kms,
    aws_logs,
    aws_sns,
    aws_sqs,
)
from constructs import Construct


class Warehouse(Stack):
    """A warehouse whose files are loaded by a Spark job, and which wants to know when one is done.

    Attributes:
        acker: What knows.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)

        # What you have: a key for what rests, a bus for all events, somebody who is called at
        # night, and a network without a way out but by endpoints.
        key = aws_kms.Key(self, "Key", enable_key_rotation=True)
        bus = aws_events.EventBus(self, "Bus", event_bus_name="warehouse")
        on_call = aws_sns.Topic(self, "OnCall", enforce_ssl=True)
        vpc, functions = private_network(self)

        self.acker = Acker(
            self,
            "Acker",
            settings=Settings(
                default_timeout_seconds=6 * 3600,
                failed_chains_threshold=10,
                tracing=True,
            ),
            bus=bus,
            encryption_key=key,
            alarm_topic=on_call,
            network=Network(
                vpc=vpc,
                subnets=aws_ec2.SubnetSelection(subnet_type=aws_ec2.SubnetType.PRIVATE_ISOLATED),
                security_groups=[functions],
            ),
        )

        # Who sends stamps: the job that loads the files. Who looks: the support.
        loader = aws_iam.Role(
            self, "Loader", assumed_by=aws_iam.ServicePrincipal("glue.amazonaws.com")
        )
        support = aws_iam.Role(
            self,
            "Support",
            assumed_by=aws_iam.AccountRootPrincipal(),
            description="Looks at chains",
        )
        self.acker.grant_send(loader)
        self.acker.grant_read(support)

        # Who is told: a queue of what is loaded, another of what was not.
        unheard = aws_sqs.Queue(
            self, "Unheard", enforce_ssl=True, retention_period=Duration.days(14)
        )
        for name, status in (("Loaded", "acked"), ("NotLoaded", "failed")):
            queue = aws_sqs.Queue(
                self,
                name,
                enforce_ssl=True,
                # What your loader fails to take three times.
                dead_letter_queue=aws_sqs.DeadLetterQueue(queue=unheard, max_receive_count=3),
            )
            self.acker.events.rule(
                f"{name}Rule", targets=[aws_events_targets.SqsQueue(queue)], statuses=[status]
            )

        CfnOutput(self, "QueueUrl", value=self.acker.queue.queue.queue_url)


def private_network(scope: Construct) -> tuple[aws_ec2.Vpc, aws_ec2.SecurityGroup]:
    """A VPC that leads to what the functions call, and nowhere else.

    Args:
        scope: Where it belongs.

    Returns:
        The VPC, with the endpoints that `xorack.cdk.Network` needs, and the security group whose
        members reach them.
    """
    vpc = aws_ec2.Vpc(
        scope,
        "Vpc",
        max_azs=2,
        nat_gateways=0,
        subnet_configuration=[
            aws_ec2.SubnetConfiguration(
                name="functions", subnet_type=aws_ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=24
            )
        ],
    )
    flows = aws_logs.LogGroup(scope, "Flows", retention=aws_logs.RetentionDays.ONE_MONTH)
    vpc.add_flow_log("Log", destination=aws_ec2.FlowLogDestination.to_cloud_watch_logs(flows))
    functions = aws_ec2.SecurityGroup(scope, "Functions", vpc=vpc)
    vpc.add_gateway_endpoint("DynamoDB", service=aws_ec2.GatewayVpcEndpointAwsService.DYNAMODB)
    services = aws_ec2.InterfaceVpcEndpointAwsService
    for name, service in (("Sqs", services.SQS), ("Events", services.EVENTBRIDGE)):
        endpoint = vpc.add_interface_endpoint(
            name, service=service, private_dns_enabled=True, open=False
        )
        endpoint.connections.allow_default_port_from(functions)
    return vpc, functions


if __name__ == "__main__":
    app = App()
    Warehouse(app, "warehouse")
    app.synth()
