package ec2_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delegate-io/dlite/driver/agent"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/ec2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider returns a provider for the cloud, with short pauses.
func (c *cloud) provider(change ...func(*ec2.Config)) vm.Provider {
	c.tb.Helper()
	cfg := ec2.Config{
		Client: c.client(), AMI: "ami-1", InstanceType: "m7i.large",
		Poll: time.Millisecond, Settle: 100 * time.Millisecond, CreateTimeout: 20 * time.Second,
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := ec2.New(cfg)
	require.NoError(c.tb, err)
	return p
}

const id, owner = "dlite-machine-1", "dlite-owner-1"

func spec(id string) vm.Spec {
	return vm.Spec{ID: id, Owner: owner, Labels: map[string]string{"team": "blue"}, Boot: boot}
}

// boot returns a boot with a visibly fake key.
func boot() []byte {
	b, err := json.Marshal(agent.Boot{
		CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("visibly-fake-key"), Time: time.Now().UnixNano(), Seed: []byte("seed"),
	})
	if err != nil {
		panic(err)
	}
	return b
}

// Rule D6: the life of a machine, with delays of EC2 and with a second process.
func TestAMachineIsCreatedFoundAndDestroyed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.hidden, c.pending, c.stale = 2, 3, 2
	p := c.provider()
	assert.Equal(t, "ec2", p.Name())
	before := time.Now()
	m, err := p.Create(t.Context(), spec(id))
	require.NoError(t, err)
	assert.Equal(t, "127.88.0.2:9079", m.Address)
	assert.WithinDuration(t, before, m.Created, 10*time.Second)
	assert.JSONEq(t, `{"instance":"i-00000000000000001","type":"m7i.large","zone":"eu-central-1a"}`, string(m.Data))

	other := c.provider()
	alive, err := other.Alive(t.Context(), id)
	require.NoError(t, err)
	assert.True(t, alive)
	ids, err := other.List(t.Context(), owner)
	require.NoError(t, err)
	assert.Equal(t, []string{id}, ids)
	ids, err = other.List(t.Context(), "dlite-somebody-else")
	require.NoError(t, err)
	assert.Empty(t, ids)

	require.NoError(t, other.Destroy(t.Context(), id))
	assert.Empty(t, c.left())
	ids, err = p.List(t.Context(), owner)
	require.NoError(t, err)
	assert.Empty(t, ids, "also when EC2 showed it running for a while")
	alive, err = p.Alive(t.Context(), id)
	require.NoError(t, err)
	assert.False(t, alive)
	require.NoError(t, other.Destroy(t.Context(), id), "again")
	assert.Equal(t, 1, c.count("TerminateInstances"), "a terminating machine is not terminated again")
	require.NoError(t, other.Destroy(t.Context(), "dlite-never-was"))
}

// A request has all settings, under their documented names.
func TestACreateRequestHasAllSettings(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	p := c.provider(func(cfg *ec2.Config) {
		cfg.SubnetIDs, cfg.SecurityGroupIDs = []string{"subnet-1"}, []string{"sg-1", "sg-2"}
		cfg.KeyName, cfg.InstanceProfile = "people", "arn:aws:iam::123456789012:instance-profile/x"
		cfg.RootVolume = ec2.RootVolume{SizeGiB: 50, Type: "gp3", IOPS: 4000, ThroughputMiBs: 250}
		cfg.Spot, cfg.SpotMaxPrice = true, "0.05"
		cfg.Tags = map[string]string{"cost": "ci", "dlite-id": "mine"}
		cfg.Adjust = func(in *awsec2.RunInstancesInput) { yes := true; in.EbsOptimized = &yes }
	})
	s := spec(id)
	s.Labels = map[string]string{"team": "blue", "aws:x": "no", "bad": "a\nb", "long": strings.Repeat("x", 257), "cost": "mine"}
	_, err := p.Create(t.Context(), s)
	require.NoError(t, err)
	form := c.forms["RunInstances"][0]
	for name, want := range map[string]string{
		"ClientToken": id + "-0", "ImageId": "ami-1", "InstanceType": "m7i.large", "MinCount": "1", "MaxCount": "1",
		"KeyName": "people", "IamInstanceProfile.Arn": "arn:aws:iam::123456789012:instance-profile/x", "EbsOptimized": "true",
		"NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": "subnet-1",
		"NetworkInterface.1.SecurityGroupId.1": "sg-1", "NetworkInterface.1.SecurityGroupId.2": "sg-2",
		"NetworkInterface.1.AssociatePublicIpAddress": "false", "NetworkInterface.1.DeleteOnTermination": "true",
		"BlockDeviceMapping.1.DeviceName": "/dev/xvda", "BlockDeviceMapping.1.Ebs.VolumeSize": "50", "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
		"BlockDeviceMapping.1.Ebs.Iops": "4000", "BlockDeviceMapping.1.Ebs.Throughput": "250",
		"BlockDeviceMapping.1.Ebs.Encrypted": "true", "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
		"InstanceMarketOptions.MarketType": "spot", "InstanceMarketOptions.SpotOptions.MaxPrice": "0.05",
		"InstanceMarketOptions.SpotOptions.SpotInstanceType":             "one-time",
		"InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
		"InstanceInitiatedShutdownBehavior":                              "terminate",
		"MetadataOptions.HttpTokens":                                     "required", "MetadataOptions.HttpPutResponseHopLimit": "1",
	} {
		assert.Equal(t, want, form.Get(name), name)
	}
	want := map[string]string{"Name": id, "dlite-id": id, "dlite-owner": owner, "team": "blue", "cost": "ci"}
	for _, kind := range []string{"instance", "volume", "network-interface", "spot-instances-request"} {
		assert.Equal(t, want, tagsOf(form, kind), kind)
	}
	assert.Contains(t, string(c.instances[0].userData), "#cloud-config\n")

	// The provider queries the name of the root device once.
	_, err = p.Create(t.Context(), spec("dlite-machine-2"))
	require.NoError(t, err)
	assert.Equal(t, 1, c.count("DescribeImages"))
}

func TestALaunchTemplateProvidesUnsetFields(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, err := c.provider(func(cfg *ec2.Config) {
		cfg.AMI, cfg.InstanceType = "", ""
		cfg.LaunchTemplate = ec2.LaunchTemplate{Name: "ci", Version: "7"}
	}).Create(t.Context(), spec(id))
	require.NoError(t, err)
	form := c.forms["RunInstances"][0]
	assert.Equal(t, "ci", form.Get("LaunchTemplate.LaunchTemplateName"))
	assert.Equal(t, "7", form.Get("LaunchTemplate.Version"))
	for name := range form {
		assert.False(t, name == "ImageId" || name == "InstanceType" || strings.HasPrefix(name, "NetworkInterface") || strings.HasPrefix(name, "BlockDevice"), name)
	}
}

func TestAPublicAddressIsUsedWhenItIsWanted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.pending = 2
	m, err := c.provider(func(cfg *ec2.Config) { cfg.PublicAddress = true }).Create(t.Context(), spec(id))
	require.NoError(t, err)
	assert.Equal(t, "127.99.0.2:9079", m.Address)
}

// A Create whose answer was lost has created a machine. Its repetition must not create
// another one.
func TestALostAnswerCreatesOneMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.loseAnswer = func(action string, call int) bool { return action == "RunInstances" && call <= 2 }
	p := c.provider()
	_, err := p.Create(t.Context(), spec(id))
	require.NoError(t, err)
	assert.Equal(t, 3, c.count("RunInstances"))
	assert.Len(t, c.left(), 1)
	require.NoError(t, p.Destroy(t.Context(), id))
	assert.Empty(t, c.left())
}

// Rule T2: a Destroy finds the machine of a Create without an answer, although EC2 does not
// show it at first.
func TestTheMachineOfALostCreateIsDestroyed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.hidden = 4
	c.loseAnswer = func(action string, _ int) bool { return action == "RunInstances" }
	p := c.provider(func(cfg *ec2.Config) { cfg.Settle = 10 * time.Second })
	_, err := p.Create(t.Context(), spec(id))
	require.Error(t, err)
	require.Len(t, c.left(), 1)
	require.NoError(t, c.provider(func(cfg *ec2.Config) { cfg.Settle = 10 * time.Second }).Destroy(t.Context(), id))
	assert.Empty(t, c.left())
	// While the result in the first subnet is unknown, no other subnet is tried.
	c = newCloud(t)
	c.loseAnswer = func(action string, _ int) bool { return action == "RunInstances" }
	_, err = c.provider(func(cfg *ec2.Config) { cfg.SubnetIDs = []string{"subnet-1", "subnet-2"} }).Create(t.Context(), spec(id))
	require.Error(t, err)
	assert.Len(t, c.left(), 1)
}

func TestThrottledCallsAreRetried(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.fail = func(_ string, call int) (int, string) {
		if call <= 5 {
			return 503, "RequestLimitExceeded"
		}
		return 0, ""
	}
	p := c.provider()
	_, err := p.Create(t.Context(), spec(id))
	require.NoError(t, err, "more attempts than the SDK has by default")
	require.NoError(t, p.Destroy(t.Context(), id))
	assert.Empty(t, c.left())
}

// A subnet without capacity is not retried before the others.
func TestSubnetsAreTriedInOrder(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.full = map[string]string{"subnet-1": "InsufficientInstanceCapacity", "subnet-2": "InsufficientFreeAddressesInSubnet"}
	three := func(cfg *ec2.Config) { cfg.SubnetIDs = []string{"subnet-1", "subnet-2", "subnet-3"} }
	_, err := c.provider(three).Create(t.Context(), spec(id))
	require.NoError(t, err)
	assert.Equal(t, 3, c.count("RunInstances"))
	assert.Equal(t, "subnet-3", c.instances[0].subnet)
	assert.Equal(t, id+"-2", c.instances[0].token)

	c.with(func() { c.full["subnet-3"] = "VcpuLimitExceeded" })
	_, err = c.provider(three).Create(t.Context(), spec("dlite-machine-2"))
	require.ErrorContains(t, err, "EC2 has no capacity")
	for _, want := range []string{"dlite-machine-2", "subnet-1: ", "InsufficientInstanceCapacity", "subnet-2: ", "subnet-3: ", "VcpuLimitExceeded"} {
		assert.ErrorContains(t, err, want)
	}
	assert.NotContains(t, err.Error(), "visibly-fake")

	c.fail = func(action string, _ int) (int, string) { return 403, "UnauthorizedOperation" }
	_, err = c.provider(three).Create(t.Context(), spec("dlite-machine-3"))
	require.ErrorContains(t, err, "UnauthorizedOperation")
	require.NotContains(t, err.Error(), "EC2 has no capacity")
	assert.Equal(t, 7, c.count("RunInstances"), "no other subnet for that")
}

// The error of a machine that EC2 terminates has the reason.
func TestTheErrorOfAFailedMachineHasTheReason(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.launch = func(i *instance) {
		i.state, i.reason = "terminated", "Client.InvalidKMSKey.InvalidState: the key is disabled"
	}
	_, err := c.provider().Create(t.Context(), spec(id))
	require.ErrorContains(t, err, "the key is disabled")

	c.launch = func(i *instance) { i.pending = 1 << 30 }
	short := func(cfg *ec2.Config) { cfg.CreateTimeout = 50 * time.Millisecond }
	_, err = c.provider(short).Create(t.Context(), spec("dlite-machine-2"))
	require.ErrorContains(t, err, "wait for i-00000000000000002 to run")

	c.launch, c.hidden = nil, 1<<30
	_, err = c.provider(short).Create(t.Context(), spec("dlite-machine-3"))
	require.ErrorContains(t, err, "does not show it")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.provider().Create(ctx, spec("dlite-machine-4"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, c.provider().Destroy(ctx, id), context.Canceled, "an empty answer does not prove that the machine does not exist")
}

// A Destroy whose search fails returns an error. It must not treat the failure as an empty
// result.
func TestADestroyWithoutAListFails(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	p := c.provider()
	_, err := p.Create(t.Context(), spec(id))
	require.NoError(t, err)
	c.with(func() { c.fail = func(string, int) (int, string) { return 403, "UnauthorizedOperation" } })
	require.ErrorContains(t, p.Destroy(t.Context(), id), "UnauthorizedOperation")
	_, err = p.Alive(t.Context(), id)
	require.Error(t, err)
	_, err = p.List(t.Context(), owner)
	require.Error(t, err)
	// The same holds for a machine that cannot be terminated.
	c.with(func() {
		c.fail = func(action string, _ int) (int, string) {
			if action == "TerminateInstances" {
				return 400, "OperationNotPermitted"
			}
			return 0, ""
		}
	})
	require.ErrorContains(t, p.Destroy(t.Context(), id), "OperationNotPermitted")
}

// A call without an answer ends with its time-out.
func TestACallThatHangsIsBounded(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	p := c.provider(func(cfg *ec2.Config) { cfg.CallTimeout = 50 * time.Millisecond })
	c.mu.Lock()
	start := time.Now()
	_, err := p.Alive(t.Context(), id)
	c.mu.Unlock()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(start), time.Minute)
}

// Volumes that an image would keep are deleted with the machine, also after an incomplete
// Create. A volume that another user has attached stays.
func TestVolumesAreDeletedWithTheirMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.volumes = func(i *instance) []*volume {
		return []*volume{
			{id: "vol-root-" + i.id, device: "/dev/xvda", goes: true},
			{id: "vol-data-" + i.id, device: "/dev/sdb"},
			{id: "vol-other-" + i.id, device: "/dev/sdc", foreign: true},
		}
	}
	p := c.provider()
	_, err := p.Create(t.Context(), spec(id))
	require.NoError(t, err)
	assert.True(t, c.instances[0].volumes[1].goes, "at once, in case the provider ends early")
	require.NoError(t, p.Destroy(t.Context(), id))
	assert.Empty(t, c.left())
	assert.False(t, c.instances[0].volumes[2].gone)

	c.loseAnswer = func(action string, _ int) bool { return action == "RunInstances" }
	_, err = p.Create(t.Context(), spec("dlite-machine-2"))
	require.Error(t, err)
	require.NoError(t, p.Destroy(t.Context(), "dlite-machine-2"))
	assert.Empty(t, c.left())
}

// A list returns all pages, and incomplete machines too.
func TestAListHasAllPages(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.page = 3
	p := c.provider()
	var wg sync.WaitGroup
	for n := range 10 {
		wg.Go(func() {
			_, err := p.Create(t.Context(), spec(fmt.Sprintf("dlite-many-%d", n)))
			assert.NoError(t, err)
		})
	}
	wg.Wait()
	c.with(func() { c.instances[3].state, c.instances[3].pending = "pending", 100 })
	ids, err := p.List(t.Context(), owner)
	require.NoError(t, err)
	assert.Len(t, ids, 10)
}

// User data has the boot in memory only, and starts the agent.
func TestUserDataIsACloudConfig(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	_, err := c.provider(func(cfg *ec2.Config) {
		cfg.MaxLife = 90 * time.Minute
		cfg.Agent = ec2.Agent{URL: "https://example.com/agent", SHA256: strings.Repeat("aB", 32)}
	}).Create(t.Context(), spec(id))
	require.NoError(t, err)
	b, script := readCloudConfig(t, c.instances[0].userData)
	assert.Equal(t, agent.Boot{CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("visibly-fake-key")}, b, "its clock is right already")
	assert.Contains(t, script, "shutdown -P +90\n")
	assert.Contains(t, script, "curl -fsSL --retry 5 -o \"$part\" 'https://example.com/agent'")
	assert.Contains(t, script, strings.Repeat("ab", 32)+"  ")
	assert.NotContains(t, script, "visibly-fake", "a script can be seen in the list of processes")

	c = newCloud(t)
	_, err = c.provider(func(cfg *ec2.Config) {
		cfg.UserData = func(boot []byte) ([]byte, error) { return append([]byte("<powershell>"), boot[:5]...), nil }
	}).Create(t.Context(), spec(id))
	require.NoError(t, err)
	assert.Equal(t, `<powershell>{"ca"`, string(c.instances[0].userData))

	_, err = c.provider(func(cfg *ec2.Config) {
		cfg.UserData = func([]byte) ([]byte, error) { return make([]byte, 16<<10+1), nil }
	}).Create(t.Context(), spec("dlite-machine-2"))
	require.ErrorContains(t, err, "the limit of EC2 is 16384")
	s := spec("dlite-machine-3")
	s.Boot = func() []byte { return []byte(`{"listen":"10.0.0.1:7000","metadata":"http://169.254.169.254"}`) }
	m, err := c.provider().Create(t.Context(), s)
	require.NoError(t, err)
	b, _ = readCloudConfig(t, c.instances[len(c.instances)-1].userData)
	assert.Equal(t, "http://169.254.169.254", b.Metadata, "the agent watches for the end of the machine")
	assert.Equal(t, "127.88.0.3:7000", m.Address, "the port of the agent")
}

// readCloudConfig parses user data like cloud-init.
func readCloudConfig(tb testing.TB, data []byte) (b agent.Boot, script string) {
	tb.Helper()
	var cfg struct {
		WriteFiles []struct {
			Path, Permissions, Encoding string
			Content                     string
		} `yaml:"write_files"`
		RunCmd [][]string `yaml:"runcmd"`
	}
	require.True(tb, strings.HasPrefix(string(data), "#cloud-config\n"))
	require.NoError(tb, yaml.Unmarshal(data, &cfg))
	require.Len(tb, cfg.WriteFiles, 1)
	f := cfg.WriteFiles[0]
	assert.Equal(tb, [3]string{"/run/dlite/boot.json", "0600", "b64"}, [3]string{f.Path, f.Permissions, f.Encoding})
	text, err := base64.StdEncoding.DecodeString(f.Content)
	require.NoError(tb, err)
	require.NoError(tb, json.Unmarshal(text, &b))
	require.Len(tb, cfg.RunCmd, 1)
	require.Equal(tb, []string{"/bin/sh", "-c"}, cfg.RunCmd[0][:2])
	return b, cfg.RunCmd[0][2]
}

func TestAnInvalidConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	good := ec2.Config{Client: newCloud(t).client(), AMI: "ami-1", InstanceType: "t3.small"}
	_, err := ec2.New(good)
	require.NoError(t, err)
	for want, change := range map[string]func(*ec2.Config){
		"the client is missing":          func(c *ec2.Config) { c.Client = nil },
		"set AMI or LaunchTemplate":      func(c *ec2.Config) { c.AMI = "" },
		"set one of them":                func(c *ec2.Config) { c.LaunchTemplate = ec2.LaunchTemplate{ID: "lt-1", Name: "x"} },
		"set InstanceType":               func(c *ec2.Config) { c.InstanceType = "" },
		"set the root volume's device":   func(c *ec2.Config) { c.AMI, c.LaunchTemplate.ID, c.RootVolume.SizeGiB = "", "lt-1", 5 },
		"both encrypted and unencrypted": func(c *ec2.Config) { c.RootVolume = ec2.RootVolume{Encrypted: true, Unencrypted: true} },
		"needs the SHA-256":              func(c *ec2.Config) { c.Agent.URL = "https://example.com/x" },
		"path or URL is not valid":       func(c *ec2.Config) { c.Agent.Path = "/x'; rm -rf /; '" },
		"less than a minute":             func(c *ec2.Config) { c.MaxLife = time.Second },
		"MaxLife needs cloud-init": func(c *ec2.Config) {
			c.MaxLife, c.UserData = time.Hour, func(b []byte) ([]byte, error) { return b, nil }
		},
		"SpotMaxPrice is set without Spot": func(c *ec2.Config) { c.SpotMaxPrice = "1" },
		`the tag "aws:x" is not valid`:     func(c *ec2.Config) { c.Tags = map[string]string{"aws:x": "y"} },
	} {
		cfg := good
		change(&cfg)
		_, err := ec2.New(cfg)
		assert.ErrorContains(t, err, want)
	}
}
