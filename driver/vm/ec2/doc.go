// Package ec2 provides the machines of a pool on Amazon EC2 (rule D6).
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
// The caller's client determines region, credentials, endpoint and proxies. The image is a Linux
// with cloud-init. It has the agent installed, or downloads it from [Agent].URL. [Config].UserData
// supports any other image.
//
// # No leftovers
//
// The call that creates a resource also tags it, with dlite-id and dlite-owner, so that any process
// can find it. The call has a client token that depends on the id: repeated calls create one
// machine. Volumes are deleted with their machine, even if the image or a launch template keeps
// them. There are no fixed addresses. A machine that shuts itself down is terminated. With
// [Config].MaxLife it does so if it was not destroyed in time.
//
// EC2 shows new resources with a delay. Destroy therefore searches for an unknown id during
// [Config].Settle before it reports success. List finds machines that appear later.
//
// # Access to the agent's key
//
// The machine's user data contains its boot, with a private key. The delegate and the agent of
// this one machine authenticate each other with that key. It has no other use, and is valid as
// long as the machine exists. These can read it:
//
//   - Users with ec2:DescribeInstanceAttribute, which many read-only policies
//
// allow. Deny it for instances that are tagged with dlite-owner.
//   - Processes on the machine, through the metadata service: user data cannot be
//
// changed while a machine runs. Steps that run as root control the machine anyway. Containers
// cannot reach the service, because it requires tokens (IMDSv2) with a limit of one hop.
//   - Readers of the machine's disk, where cloud-init keeps copies. The copies are
//
// removed before the agent starts, and the root volume is encrypted if [RootVolume] is set. The
// agent's own file is in memory (/run).
//
// The key is useless without access to the agent's port: let the security group admit only the
// delegate. Keep to one stage for each machine.
//
// Every step can use the credentials of [Config].InstanceProfile in the same way. Give machines no
// profile, or one that every step may use.
//
// # Permissions
//
// The delegate needs ec2:RunInstances, CreateTags, DescribeInstances, DescribeVolumes,
// DescribeImages, ModifyInstanceAttribute and TerminateInstances, and iam:PassRole for a profile.
// All but the Describe calls can be restricted to resources with dlite-owner.
//
// Start reading at ec2.go.
package ec2
