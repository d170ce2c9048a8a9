// Package ec2 makes the machines of a pool on Amazon EC2 (SPEC D6).
//
//	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion("eu-central-1"))
//	if err != nil {
//		return err
//	}
//	machines, err := ec2.New(ec2.Config{
//		Client:           awsec2.NewFromConfig(cfg),
//		AMI:              "ami-0123456789abcdef0",
//		InstanceType:     "m7i.large",
//		SubnetIDs:        []string{"subnet-0a", "subnet-0b"},
//		SecurityGroupIDs: []string{"sg-0c"},
//	})
//
// Region, credentials, endpoint and proxies are the client's, and so of whoever
// makes it. The image is a Linux with cloud-init that has the agent installed,
// or gets it from [Agent].URL; for any other image there is [Config].UserData.
//
// # What is left behind: nothing
//
// Everything is tagged in the call that makes it, with [TagID] and [TagOwner], so
// that any process finds it again. The call carries a client token that is made of
// the id: however often it is sent, one machine comes of it. Volumes go with their
// machine, also those that the image or a launch template wants to keep.
// There are no fixed addresses. A machine that shuts itself down is gone, and with
// [Config].MaxLife it does so when nobody has destroyed it in time.
//
// EC2 shows what it has made only after a while. So Destroy looks for an id that
// it does not see for [Config].Settle before it says that there is nothing. What
// appears later still is found by List.
//
// # Who can read the agent's key
//
// The machine's boot is in its user data, and there is a private key in it:
// the one by which the delegate and this one machine's agent know each other. It is
// good for nothing else, and for as long as the machine lives. It can be read by
//
//   - whoever may call ec2:DescribeInstanceAttribute, which many read-only policies
//     allow. Deny it for instances that are tagged with [TagOwner].
//   - whatever runs on the machine, through the metadata service, as user data
//     cannot be changed while a machine runs. Steps that run there as root own the
//     machine anyhow; containers do not get there, as the service takes tokens only
//     (IMDSv2), which get one hop far.
//   - whoever reads the machine's disk, where cloud-init keeps copies. They are
//     removed before the agent starts, and the root volume is encrypted when
//     [RootVolume] is set. The agent's own file is in memory (/run).
//
// Someone who has the key needs a way to the agent's port, too: let the security
// group admit the delegate alone. And keep to one stage for each machine.
//
// The credentials of [Config].InstanceProfile can be had by every step, in the same
// way. Give machines none, or one that every step may have.
//
// # Permissions
//
// ec2:RunInstances, CreateTags, DescribeInstances, DescribeVolumes, DescribeImages,
// ModifyInstanceAttribute and TerminateInstances, and iam:PassRole for a profile.
// All but the Describe calls can be restricted to resources with [TagOwner].
//
// Start reading at ec2.go.
package ec2
