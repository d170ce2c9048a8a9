package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // an image may have no time zones

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/goccy/go-yaml"
	"github.com/rs/zerolog"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/ec2"
	"github.com/delegate-io/dlite/driver/vm/libvirt"
	"github.com/delegate-io/dlite/driver/vm/qemu"
)

// poolFile is the content of the file that VM_POOLS names.
type poolFile struct {
	Pools []poolSettings `yaml:"pools"`
}

// poolSettings describes a pool and its provider. Exactly one of the last three fields is set.
type poolSettings struct {
	Name     string            `yaml:"name"`
	OS       string            `yaml:"os"`
	Arch     string            `yaml:"arch"`
	Min      int               `yaml:"min"`
	Max      int               `yaml:"max"`
	Schedule []windowSettings  `yaml:"schedule"`
	Forecast bool              `yaml:"forecast"`
	Shrink   span              `yaml:"shrink_after"`
	Price    float64           `yaml:"price_per_hour"`
	MaxIdle  span              `yaml:"max_idle"`
	MaxAge   span              `yaml:"max_age"`
	MaxUses  int               `yaml:"max_uses"`
	Boot     span              `yaml:"boot_timeout"`
	KeepWarm bool              `yaml:"keep_warm"`
	Labels   map[string]string `yaml:"labels"`

	QEMU    *qemuSettings    `yaml:"qemu"`
	Libvirt *libvirtSettings `yaml:"libvirt"`
	EC2     *ec2Settings     `yaml:"ec2"`
}

// windowSettings raise the minimum of a pool at certain times.
type windowSettings struct {
	Days string `yaml:"days"`
	From string `yaml:"from"`
	To   string `yaml:"to"`
	Zone string `yaml:"zone"`
	Min  int    `yaml:"min"`
}

// span is a duration with its unit.
type span struct{ time.Duration }

// UnmarshalYAML reads a duration such as "5m".
func (s *span) UnmarshalYAML(b []byte) (err error) {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	if s.Duration, err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("a time is a number with its unit, such as 90s or 12h, and not %q", text)
	}
	return nil
}

// GuestSettings holds the settings that QEMU and libvirt share. It is exported so that other settings can embed it.
type GuestSettings struct {
	Machine  string `yaml:"machine"`
	CPU      string `yaml:"cpu"`
	CPUs     int    `yaml:"cpus"`
	MemoryMB int    `yaml:"memory_mb"`
	Kernel   string `yaml:"kernel"`
	Initrd   string `yaml:"initrd"`
	Append   string `yaml:"append"`
	Image    string `yaml:"image"`
	Restrict bool   `yaml:"restrict"`
}

type qemuSettings struct {
	GuestSettings `yaml:",inline"`

	Binary    string   `yaml:"binary"`
	Accel     string   `yaml:"accel"`
	Snapshot  bool     `yaml:"snapshot"`
	User      string   `yaml:"user"`
	ExtraArgs []string `yaml:"extra_args"`
}

type libvirtSettings struct {
	GuestSettings `yaml:",inline"`

	Socket      string `yaml:"socket"`
	URI         string `yaml:"uri"`
	Type        string `yaml:"type"`
	ImageFormat string `yaml:"image_format"`
	StoragePool string `yaml:"storage_pool"`
	Template    string `yaml:"template"`
}

type ec2Settings struct {
	Region          string            `yaml:"region"`
	AMI             string            `yaml:"ami"`
	LaunchTemplate  string            `yaml:"launch_template"`
	InstanceType    string            `yaml:"instance_type"`
	Subnets         []string          `yaml:"subnets"`
	SecurityGroups  []string          `yaml:"security_groups"`
	PublicAddress   bool              `yaml:"public_address"`
	KeyName         string            `yaml:"key_name"`
	InstanceProfile string            `yaml:"instance_profile"`
	RootVolumeGiB   int32             `yaml:"root_volume_gib"`
	Spot            bool              `yaml:"spot"`
	Tags            map[string]string `yaml:"tags"`
	MaxLife         span              `yaml:"max_life"`
	AgentPath       string            `yaml:"agent_path"`
	AgentURL        string            `yaml:"agent_url"`
	AgentSHA256     string            `yaml:"agent_sha256"`
	SpotMaxPrice    string            `yaml:"spot_max_price"`
}

// providersDir is the directory with the state of all providers. It is next to the directories of the pools.
const providersDir = "machines"

// readPools reads the file of VM_POOLS. An unknown field is an error.
func readPools(file string) ([]poolSettings, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("VM_POOLS: %w", err)
	}
	var f poolFile
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("VM_POOLS: %s: %w", file, err)
	}
	if len(f.Pools) == 0 {
		return nil, fmt.Errorf("VM_POOLS: %s has no pools", file)
	}
	names := map[string]bool{}
	for _, p := range f.Pools {
		if fileName(p.Name) == providersDir {
			return nil, fmt.Errorf("VM_POOLS: %s: a pool cannot be called %q, as its folder in VM_STATE_DIR is taken", file, p.Name)
		}
		if names[p.Name] {
			return nil, fmt.Errorf("VM_POOLS: %s has two pools with the name %q", file, p.Name)
		}
		names[p.Name] = true
	}
	return f.Pools, nil
}

// machines holds the driver of the pools and the values that Close must close.
type machines struct {
	*vm.Driver
	pools []*vm.Pool
	// forecast has the names of the pools that prepare for the stages that wait at the manager.
	forecast map[string]bool
}

// openMachines starts the pools of VM_POOLS.
func openMachines(ctx context.Context, cfg config, hc *http.Client, log zerolog.Logger) (*machines, error) {
	list, err := readPools(cfg.VMPools)
	if err != nil {
		return nil, err
	}
	m := &machines{forecast: map[string]bool{}}
	for _, s := range list {
		if err := m.add(ctx, cfg, s, hc, log); err != nil {
			return nil, errors.Join(fmt.Errorf("VM_POOLS: pool %q: %w", s.Name, err), m.Close())
		}
	}
	for _, p := range m.pools { // every pool is valid
		if err := p.Start(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("VM_STATE_DIR: %w", err), m.Close())
		}
	}
	if m.Driver, err = vm.New(m.pools); err != nil {
		return nil, errors.Join(fmt.Errorf("VM_POOLS: %w", err), m.Close())
	}
	return m, nil
}

// add creates a pool without starting it.
func (m *machines) add(ctx context.Context, cfg config, s poolSettings, hc *http.Client, log zerolog.Logger) error {
	dir := filepath.Join(cfg.VMStateDir, fileName(s.Name))
	provider, err := s.provider(ctx, filepath.Join(cfg.VMStateDir, providersDir), hc)
	if err != nil {
		return err
	}
	var windows []vm.Window
	for _, w := range s.Schedule {
		windows = append(windows, vm.Window(w))
	}
	p, err := vm.NewPool(provider, vm.PoolConfig{
		Metadata: s.metadata(), Schedule: windows, Forecast: s.Forecast, ShrinkAfter: s.Shrink.Duration, Price: s.Price,
		Name: s.Name, Dir: dir, OS: s.OS, Arch: s.Arch, Min: s.Min, Max: s.Max, MaxIdle: s.MaxIdle.Duration, MaxAge: s.MaxAge.Duration,
		MaxUses: s.MaxUses, BootTimeout: s.Boot.Duration, KeepWarm: s.KeepWarm, Labels: s.Labels, Log: log,
	})
	if err != nil {
		return err
	}
	m.pools = append(m.pools, p)
	m.forecast[s.Name] = s.Forecast
	return nil
}

// metadata returns the address of the metadata service that announces the end of a machine. Only EC2 has one, for spare
// capacity.
func (s *poolSettings) metadata() string {
	if s.EC2 == nil || !s.EC2.Spot {
		return ""
	}
	return "http://169.254.169.254"
}

// provider returns the provider that the settings name.
func (s *poolSettings) provider(ctx context.Context, state string, hc *http.Client) (vm.Provider, error) {
	var named []string
	for name, there := range map[string]bool{"qemu": s.QEMU != nil, "libvirt": s.Libvirt != nil, "ec2": s.EC2 != nil} {
		if there {
			named = append(named, name)
		}
	}
	if len(named) != 1 {
		return nil, fmt.Errorf("it must have exactly one of qemu, libvirt and ec2, not %d (%s)", len(named), strings.Join(named, ", "))
	}
	switch {
	case s.QEMU != nil:
		q := s.QEMU
		return qemu.New(qemu.Config{
			StateDir: state, Binary: q.Binary, Machine: q.Machine, Accel: q.Accel, CPU: q.CPU, CPUs: q.CPUs, MemoryMB: q.MemoryMB,
			Kernel: q.Kernel, Initrd: q.Initrd, Append: q.Append, Image: q.Image, Snapshot: q.Snapshot, Restrict: q.Restrict,
			User: q.User, BootTimeout: s.Boot.Duration, ExtraArgs: q.ExtraArgs,
		})
	case s.Libvirt != nil:
		return s.Libvirt.provider(s)
	default:
		return s.EC2.provider(ctx, hc)
	}
}

func (l *libvirtSettings) provider(s *poolSettings) (vm.Provider, error) {
	c := libvirt.Config{
		Socket: l.Socket, URI: l.URI, Type: l.Type, Machine: l.Machine, CPU: l.CPU, CPUs: l.CPUs, MemoryMB: l.MemoryMB,
		Kernel: l.Kernel, Initrd: l.Initrd, Append: l.Append, Image: l.Image, ImageFormat: l.ImageFormat, Pool: l.StoragePool,
		Restrict: l.Restrict, BootTimeout: s.Boot.Duration,
	}
	if l.Template != "" {
		b, err := os.ReadFile(l.Template)
		if err != nil {
			return nil, fmt.Errorf("template: %w", err)
		}
		c.Template = string(b)
	}
	return libvirt.New(c)
}

// provider finds its credentials in the same places as the AWS tools. Only the calls to EC2 use hc: the credentials of
// a machine come from a link-local address, which no proxy reaches.
func (e *ec2Settings) provider(ctx context.Context, hc *http.Client) (vm.Provider, error) {
	var options []func(*awsconfig.LoadOptions) error
	if e.Region != "" {
		options = append(options, awsconfig.WithRegion(e.Region))
	}
	aws, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	return ec2.New(ec2.Config{
		Client: awsec2.NewFromConfig(aws, func(o *awsec2.Options) { o.HTTPClient = hc }), AMI: e.AMI, LaunchTemplate: ec2.LaunchTemplate{Name: e.LaunchTemplate},
		InstanceType: e.InstanceType, SubnetIDs: e.Subnets, SecurityGroupIDs: e.SecurityGroups, PublicAddress: e.PublicAddress,
		KeyName: e.KeyName, InstanceProfile: e.InstanceProfile, RootVolume: ec2.RootVolume{SizeGiB: e.RootVolumeGiB},
		Spot: e.Spot, SpotMaxPrice: e.SpotMaxPrice, Tags: e.Tags, MaxLife: e.MaxLife.Duration,
		Agent: ec2.Agent{Path: e.AgentPath, URL: e.AgentURL, SHA256: e.AgentSHA256},
	})
}

// Close closes the driver, and then its pools.
func (m *machines) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if m.Driver != nil {
		errs = append(errs, m.Driver.Close())
	}
	for _, p := range m.pools {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}
