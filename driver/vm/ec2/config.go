package ec2

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Client is what this package needs of the EC2 client of the AWS SDK, which fits.
type Client interface {
	RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
	DescribeInstances(context.Context, *ec2.DescribeInstancesInput, ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error)
	DescribeVolumes(context.Context, *ec2.DescribeVolumesInput, ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error)
	DescribeImages(context.Context, *ec2.DescribeImagesInput, ...func(*ec2.Options)) (*ec2.DescribeImagesOutput, error)
	ModifyInstanceAttribute(context.Context, *ec2.ModifyInstanceAttributeInput, ...func(*ec2.Options)) (*ec2.ModifyInstanceAttributeOutput, error)
	TerminateInstances(context.Context, *ec2.TerminateInstancesInput, ...func(*ec2.Options)) (*ec2.TerminateInstancesOutput, error)
}

// Config says what machines are like. Client and one of AMI and LaunchTemplate are
// required.
type Config struct {
	Client Client

	// AMI is the image's id.
	AMI string
	// LaunchTemplate gives everything that is not set here. Its user data is not
	// used.
	LaunchTemplate LaunchTemplate
	// InstanceType is such as "m7i.large". Without one it is the launch template's,
	// which is required then.
	InstanceType string

	// SubnetIDs are tried in their order when one has no capacity or no addresses.
	// Without any it is the launch template's, or one of the default VPC.
	SubnetIDs []string
	// SecurityGroupIDs should let the delegate, and nobody else, reach the agent's
	// port.
	SecurityGroupIDs []string
	// PublicAddress gives the machine a public address, and has the delegate use
	// it. By default the delegate uses the private one, and a machine whose subnet
	// or groups are named here has no other.
	PublicAddress bool

	// KeyName is a key pair for people to log in with. Empty means none.
	KeyName string
	// InstanceProfile is the name or the ARN of an IAM instance profile. Every
	// step can act as it. Empty means none.
	InstanceProfile string
	// RootVolume replaces what the image says of its first disk.
	RootVolume RootVolume
	// Spot asks for spare capacity, which EC2 may take away at any time: it fails
	// the step that runs. SpotMaxPrice is in dollars for an hour; empty is the price
	// on demand.
	Spot         bool
	SpotMaxPrice string
	// Tags go to machines, volumes and network interfaces, beside the labels of the
	// pool and the tags of this package, which win.
	Tags map[string]string

	// Agent is where the image has its agent.
	Agent Agent
	// UserData makes the user data of an image without cloud-init from an
	// agent.Boot as JSON, which has a private key in it. Nil means cloud-init and
	// Agent.
	UserData func(boot []byte) ([]byte, error)
	// Adjust changes the request where this Config has no field for it. It must do
	// the same to the same request.
	Adjust func(*ec2.RunInstancesInput)

	// MaxLife is when a machine shuts itself down, and with that is gone, whatever
	// becomes of its delegate. Set it well above the pool's own greatest age. At
	// least a minute; 0 means never. It takes cloud-init.
	MaxLife time.Duration

	// CreateTimeout bounds Create, and Destroy likewise. 0 means 5 minutes.
	CreateTimeout time.Duration
	// CallTimeout bounds a call with all its retries. 0 means a minute.
	CallTimeout time.Duration
	// Poll is the least time between two looks at a machine that is being made or
	// destroyed; the time grows to five times that. 0 means 2 s.
	Poll time.Duration
	// Settle is how long EC2 may take to show what it has made. 0 means 15 s.
	Settle time.Duration
}

// LaunchTemplate names a launch template by ID or Name.
type LaunchTemplate struct {
	ID, Name string
	// Version is a number, $Latest or $Default. Empty means $Default.
	Version string
}

func (l LaunchTemplate) set() bool { return l.ID != "" || l.Name != "" }

// RootVolume is a machine's first disk. The zero value leaves it to the image, and
// to the account whether it is encrypted.
type RootVolume struct {
	// SizeGiB is at least the image's. 0 means the image's.
	SizeGiB int32
	// Type is such as "gp3". Empty means the image's.
	Type string
	// IOPS and ThroughputMiBs are in operations and MiB for a second, where the
	// type takes them. 0 means the type's.
	IOPS, ThroughputMiBs int32
	// KMSKeyID is the key that it is encrypted with. Empty means the account's key.
	KMSKeyID string
	// Unencrypted leaves the encryption to the image and the account. By default a
	// RootVolume of which anything is set is encrypted.
	Unencrypted bool
	// Encrypted asks for encryption when nothing else is set.
	Encrypted bool
	// Device is the image's name for it, such as "/dev/xvda". Empty means to ask
	// for it (DescribeImages), which takes an AMI.
	Device string
}

func (v RootVolume) set() bool {
	v.Device = ""
	return v != RootVolume{}
}

// Agent is the program that a machine runs, examples/agent or one like it.
type Agent struct {
	// Path is where the image has it. Empty means /usr/local/bin/dlite-agent.
	Path string
	// URL is where an image without one gets it, with curl or wget, before it goes
	// to Path. Everybody who may read user data sees it. SHA256 is required then.
	URL, SHA256 string
}

// check completes a configuration.
func (c *Config) check() error {
	for _, d := range []struct {
		of  *time.Duration
		def time.Duration
	}{{&c.CreateTimeout, 5 * time.Minute}, {&c.CallTimeout, time.Minute}, {&c.Poll, 2 * time.Second}, {&c.Settle, 15 * time.Second}} {
		if *d.of <= 0 {
			*d.of = d.def
		}
	}
	if c.Agent.Path == "" {
		c.Agent.Path = "/usr/local/bin/dlite-agent"
	}
	if len(c.SubnetIDs) == 0 {
		c.SubnetIDs = []string{""}
	}
	switch sum, err := hex.DecodeString(c.Agent.SHA256); {
	case c.Client == nil:
		return errors.New("ec2: there is no client: give it one of the AWS SDK")
	case c.AMI == "" && !c.LaunchTemplate.set():
		return errors.New("ec2: name an AMI or a launch template")
	case c.LaunchTemplate.ID != "" && c.LaunchTemplate.Name != "":
		return errors.New("ec2: the launch template has an id and a name: leave one out")
	case c.InstanceType == "" && !c.LaunchTemplate.set():
		return errors.New("ec2: name an instance type")
	case c.RootVolume.set() && c.RootVolume.Device == "" && c.AMI == "":
		return errors.New("ec2: name the root volume's device, or the AMI to ask for it")
	case c.RootVolume.Encrypted && c.RootVolume.Unencrypted:
		return errors.New("ec2: the root volume is to be encrypted and unencrypted")
	case c.Agent.URL != "" && (err != nil || len(sum) != 32):
		return errors.New("ec2: the agent's URL needs the SHA-256 of what is there, as 64 hexadecimal digits")
	case strings.ContainsAny(c.Agent.Path+c.Agent.URL, "'\n\x00") || !strings.HasPrefix(c.Agent.Path, "/"):
		return errors.New("ec2: the agent's path or URL is not valid")
	case c.MaxLife < 0 || c.MaxLife > 0 && c.MaxLife < time.Minute:
		return fmt.Errorf("ec2: a greatest life of %v is less than a minute", c.MaxLife)
	case c.MaxLife > 0 && c.UserData != nil:
		return errors.New("ec2: MaxLife takes cloud-init: have your own user data see to it")
	case c.SpotMaxPrice != "" && !c.Spot:
		return errors.New("ec2: there is a greatest price, and Spot is not set")
	}
	for k, v := range c.Tags {
		if !validTag(k, v) {
			return fmt.Errorf("ec2: the tag %q is not valid", k)
		}
	}
	return nil
}
