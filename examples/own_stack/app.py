"""An acker in your own stack, with your key, bus, network and subscribers.

``pip install 'xorack[cdk]'``, then ``cdk deploy``.
"""

from __future__ import annotations

from xorack.cdk import Acker, Network, Settings  # isort: skip - before aws_cdk, because it finds Node

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
    """A warehouse. A Spark job loads files, and the acker reports when each file is loaded."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)

        # Your resources: a key, a bus for all events, a topic for urgent alarms, and a network that
        # leads only to its endpoints.
        key = aws_kms.Key(self, "Key", enable_key_rotation=True)
        bus = aws_events.EventBus(self, "Bus", event_bus_name="warehouse")
        on_call = aws_sns.Topic(self, "OnCall", enforce_ssl=True, master_key=key)

        acker = Acker(
            self,
            "Acker",
            settings=Settings(
                default_timeout_seconds=6 * 3600, failed_chains_threshold=10, tracing=True
            ),
            bus=bus,
            encryption_key=key,
            alarm_topic=on_call,
            network=private_network(self, key),
        )

        # The job that loads the files sends stamps. The support team reads chains.
        glue = aws_iam.ServicePrincipal("glue.amazonaws.com")
        people = aws_iam.AccountRootPrincipal()
        acker.grant_send(aws_iam.Role(self, "Loader", assumed_by=glue))
        acker.grant_read(aws_iam.Role(self, "Support", assumed_by=people))

        # One queue gets the loaded files, and another queue the failed files. Dead letters are
        # messages that your subscriber fails three times, and events that cannot be delivered.
        two_weeks = Duration.days(14)
        unheard = aws_sqs.Queue(self, "Unheard", enforce_ssl=True, retention_period=two_weeks)
        redrive = aws_sqs.DeadLetterQueue(queue=unheard, max_receive_count=3)
        for name, status in (("Loaded", "acked"), ("NotLoaded", "failed")):
            queue = aws_sqs.Queue(
                self,
                name,
                enforce_ssl=True,
                retention_period=Duration.days(4),
                dead_letter_queue=redrive,
            )
            target = aws_events_targets.SqsQueue(queue, dead_letter_queue=unheard)
            acker.events.rule(f"{name}Rule", targets=[target], statuses=[status])

        CfnOutput(self, "QueueUrl", value=acker.queue.queue_url)


def private_network(scope: Construct, key: aws_kms.IKey) -> Network:
    """Create a VPC with the endpoints that the functions need, and no other way out."""
    isolated = aws_ec2.SubnetType.PRIVATE_ISOLATED
    subnets = aws_ec2.SubnetConfiguration(name="functions", subnet_type=isolated, cidr_mask=24)
    vpc = aws_ec2.Vpc(scope, "Vpc", max_azs=2, nat_gateways=0, subnet_configuration=[subnets])
    month = aws_logs.RetentionDays.ONE_MONTH
    flows = aws_logs.LogGroup(scope, "Flows", retention=month, encryption_key=key)
    vpc.add_flow_log("Log", destination=aws_ec2.FlowLogDestination.to_cloud_watch_logs(flows))
    functions = aws_ec2.SecurityGroup(scope, "Functions", vpc=vpc)
    vpc.add_gateway_endpoint("DynamoDB", service=aws_ec2.GatewayVpcEndpointAwsService.DYNAMODB)
    services = aws_ec2.InterfaceVpcEndpointAwsService
    for name, service in (("Sqs", services.SQS), ("Events", services.EVENTBRIDGE)):
        endpoint = vpc.add_interface_endpoint(
            name, service=service, private_dns_enabled=True, open=False
        )
        endpoint.connections.allow_default_port_from(functions)
    selection = aws_ec2.SubnetSelection(subnet_type=isolated)
    return Network(vpc=vpc, subnets=selection, security_groups=[functions])


if __name__ == "__main__":
    app = App()
    Warehouse(app, "warehouse")
    app.synth()
