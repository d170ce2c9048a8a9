package ec2

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
)

// Config describes the machines. Client and one of AMI and LaunchTemplate are required.
type Config struct {
	// Client is an EC2 client of the AWS SDK.
	Client *ec2.Client

	// AMI is the id of the image.
	AMI string
	// LaunchTemplate supplies all settings that are not set here. Its user data is ignored.
	LaunchTemplate LaunchTemplate
	// InstanceType is an instance type such as "m7i.large". Empty means the launch template's
	// type, which is required then.
	InstanceType string

	// SubnetIDs are tried in order if a subnet has no capacity or addresses. Empty means the
	// launch template's subnet, or one of the default VPC.
	SubnetIDs []string
	// SecurityGroupIDs should admit only the delegate to the agent's port.
	SecurityGroupIDs []string
	// PublicAddress gives the machine a public address, which the delegate uses. By default the
	// delegate uses the private address. A machine whose subnets or groups are set here then has
	// no public one.
	PublicAddress bool

	// KeyName is a key pair for logins. Empty means none.
	KeyName string
	// InstanceProfile is the name or the ARN of an IAM instance profile. Every step can use it.
	// Empty means none.
	InstanceProfile string
	// RootVolume overrides the image's settings of its first disk.
	RootVolume RootVolume
	// Spot requests spare capacity. EC2 may reclaim it at any time, which fails the running step.
	// SpotMaxPrice is in dollars per hour; empty is the on-demand price.
	Spot         bool
	SpotMaxPrice string
	// Tags are added to machines, volumes and network interfaces. The pool's labels and this
	// package's tags take precedence.
	Tags map[string]string

	// Agent describes the agent of the image.
	Agent Agent
	// UserData converts an agent.Boot as JSON to the user data of an image without cloud-init. The
	// boot contains a private key. Nil means cloud-init and Agent.
	UserData func(boot []byte) ([]byte, error)
	// Adjust changes a request, for settings that Config lacks. It must be deterministic.
	Adjust func(*ec2.RunInstancesInput)

	// MaxLife is the age at which a machine shuts itself down and is terminated, even without its
	// delegate. Set it well above the pool's maximum age. The minimum is one minute; 0 means
	// never. It requires cloud-init.
	MaxLife time.Duration

	// CreateTimeout limits Create, and Destroy as well. 0 means 5 minutes.
	CreateTimeout time.Duration
	// CallTimeout limits a call including its retries. 0 means one minute.
	CallTimeout time.Duration
	// Poll is the shortest pause between polls of a machine that is being created or destroyed.
	// The pause grows to five times Poll. 0 means 2 s.
	Poll time.Duration
	// Settle is the time after which EC2 shows new resources. 0 means 15 s.
	Settle time.Duration
}

// LaunchTemplate identifies a launch template by ID or Name.
type LaunchTemplate struct {
	ID, Name string
	// Version is a number, $Latest or $Default. Empty means $Default.
	Version string
}

func (l LaunchTemplate) set() bool { return l.ID != "" || l.Name != "" }

// RootVolume is a machine's first disk. The zero value uses the image's settings, and the
// account's setting for encryption.
type RootVolume struct {
	// SizeGiB is at least the image's size. 0 means the image's size.
	SizeGiB int32
	// Type is a volume type such as "gp3". Empty means the image's.
	Type string
	// IOPS and ThroughputMiBs are per second, for types that support them. 0 means the type's
	// default.
	IOPS, ThroughputMiBs int32
	// KMSKeyID is the encryption key. Empty means the account's key.
	KMSKeyID string
	// Unencrypted uses the encryption settings of the image and the account. By default a
	// RootVolume with any other setting is encrypted.
	Unencrypted bool
	// Encrypted requests encryption if no other field is set.
	Encrypted bool
	// Device is the image's name of the disk, such as "/dev/xvda". Empty means to ask EC2
	// (DescribeImages), which requires an AMI.
	Device string
}

func (v RootVolume) set() bool {
	v.Device = ""
	return v != RootVolume{}
}

// Agent is the program that a machine runs: examples/agent or a compatible one.
type Agent struct {
	// Path is the path of the program. Empty means /usr/local/bin/dlite-agent.
	Path string
	// URL is the download location for an image without the program. The machine stores it at
	// Path, with curl or wget. All readers of the user data see the URL. It requires SHA256.
	URL, SHA256 string
}

// check validates the configuration and sets the defaults.
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
		return errors.New("ec2: the client is missing: set Client to an EC2 client of the AWS SDK")
	case c.AMI == "" && !c.LaunchTemplate.set():
		return errors.New("ec2: set AMI or LaunchTemplate")
	case c.LaunchTemplate.ID != "" && c.LaunchTemplate.Name != "":
		return errors.New("ec2: the launch template has an id and a name: set one of them")
	case c.InstanceType == "" && !c.LaunchTemplate.set():
		return errors.New("ec2: set InstanceType")
	case c.RootVolume.set() && c.RootVolume.Device == "" && c.AMI == "":
		return errors.New("ec2: set the root volume's device, or an AMI to find it")
	case c.RootVolume.Encrypted && c.RootVolume.Unencrypted:
		return errors.New("ec2: the root volume is both encrypted and unencrypted")
	case c.Agent.URL != "" && (err != nil || len(sum) != 32):
		return errors.New("ec2: the agent's URL needs the SHA-256 of its content, as 64 hexadecimal digits")
	case strings.ContainsAny(c.Agent.Path+c.Agent.URL, "'\n\x00") || !strings.HasPrefix(c.Agent.Path, "/"):
		return errors.New("ec2: the agent's path or URL is not valid")
	case c.MaxLife < 0 || c.MaxLife > 0 && c.MaxLife < time.Minute:
		return fmt.Errorf("ec2: a MaxLife of %v is less than a minute", c.MaxLife)
	case c.MaxLife > 0 && c.UserData != nil:
		return errors.New("ec2: MaxLife needs cloud-init: remove it or UserData")
	case c.SpotMaxPrice != "" && !c.Spot:
		return errors.New("ec2: SpotMaxPrice is set without Spot")
	}
	for k, v := range c.Tags {
		if !validTag(k, v) {
			return fmt.Errorf("ec2: the tag %q is not valid", k)
		}
	}
	return nil
}
