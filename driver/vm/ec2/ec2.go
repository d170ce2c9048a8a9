package ec2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/delegate-io/dlite/driver/vm"
)

// Tags of all resources that a Provider creates.
const (
	// tagID is the tag with the machine's id (vm.Spec).
	tagID = "dlite-id"
	// tagOwner is the tag with the machine's owner.
	tagOwner = "dlite-owner"
)

// errCapacity is wrapped by the error of a Create that found no capacity in any subnet, or
// exceeded the account's limits. A later attempt may succeed.
var errCapacity = errors.New("EC2 has no capacity for the machine")

// ec2Provider implements [vm.Provider] on EC2. It has no state that another process needs. It is safe
// for concurrent use.
type ec2Provider struct {
	cfg  Config
	root device
}

// New checks the configuration. It makes no call to EC2.
func New(cfg Config) (vm.Provider, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &ec2Provider{cfg: cfg}, nil
}

// Name returns "ec2".
func (p *ec2Provider) Name() string { return "ec2" }

// made is the Data of a machine's record.
type made struct {
	Instance string `json:"instance"`
	Type     string `json:"type"`
	Zone     string `json:"zone,omitempty"`
	Spot     bool   `json:"spot,omitempty"`
}

// Create implements [vm.Provider]. It returns when EC2 reports the machine as running, which is
// before its agent serves.
func (p *ec2Provider) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CreateTimeout)
	defer cancel()
	port, err := p.run(ctx, spec)
	if err != nil {
		return vm.Machine{}, fmt.Errorf("machine %s: %w", spec.ID, err)
	}
	i, err := p.running(ctx, spec.ID)
	if err != nil {
		return vm.Machine{}, fmt.Errorf("machine %s: %w", spec.ID, err)
	}
	if err := p.bindVolumes(ctx, spec.ID, i); err != nil {
		return vm.Machine{}, fmt.Errorf("machine %s: %w", spec.ID, err)
	}
	m := made{Instance: aws.ToString(i.InstanceId), Type: string(i.InstanceType), Spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot}
	if i.Placement != nil {
		m.Zone = aws.ToString(i.Placement.AvailabilityZone)
	}
	data, err := json.Marshal(m)
	if err != nil {
		return vm.Machine{}, err
	}
	created := aws.ToTime(i.LaunchTime)
	if created.IsZero() {
		created = time.Now()
	}
	return vm.Machine{Address: net.JoinHostPort(p.address(i), port), Created: created, Data: data}, nil
}

// run starts the machine in the first subnet with capacity, and returns the port of its agent.
// After an error with an unknown result it stops, so that it never creates two machines.
func (p *ec2Provider) run(ctx context.Context, spec vm.Spec) (port string, err error) {
	device, err := p.rootDevice(ctx)
	if err != nil {
		return "", err
	}
	data, port, err := p.userData(spec.Boot())
	if err != nil {
		return "", err
	}
	var full []error
	for n, subnet := range p.cfg.SubnetIDs {
		in := p.request(spec, data, device, n)
		err := p.call(ctx, func(ctx context.Context) error {
			_, err := p.cfg.Client.RunInstances(ctx, in, retryPolicy)
			return err
		})
		switch {
		case err == nil:
			return port, nil
		case !noRoom(err):
			return "", fmt.Errorf("start it: %w", err)
		case subnet != "":
			err = fmt.Errorf("%s: %w", subnet, err)
		}
		full = append(full, err)
	}
	return "", fmt.Errorf("%w: %w", errCapacity, errors.Join(full...))
}

// running waits until the machine runs and has an address.
func (p *ec2Provider) running(ctx context.Context, id string) (*types.Instance, error) {
	var last *types.Instance
	err := p.await(ctx, p.cfg.CreateTimeout, id, func(found []types.Instance) (bool, error) {
		if len(found) == 0 {
			return false, nil // EC2 does not show it yet
		}
		last = &found[0]
		switch state(last) {
		case types.InstanceStateNamePending:
			return false, nil
		case types.InstanceStateNameRunning:
			return p.address(last) != "", nil
		}
		return false, fmt.Errorf("it is %s: %s", state(last), reason(last))
	})
	switch {
	case err == nil:
		return last, nil
	case last == nil:
		return nil, fmt.Errorf("EC2 started the machine but does not show it: %w", err)
	case state(last) == types.InstanceStateNameRunning:
		return nil, fmt.Errorf("%s runs without an address: %w", aws.ToString(last.InstanceId), err)
	}
	return nil, fmt.Errorf("wait for %s to run: %w", aws.ToString(last.InstanceId), err)
}

// address returns the machine's address for the delegate, or "".
func (p *ec2Provider) address(i *types.Instance) string {
	if p.cfg.PublicAddress {
		return aws.ToString(i.PublicIpAddress)
	}
	return aws.ToString(i.PrivateIpAddress)
}

// Alive implements [vm.Provider]. A machine that is starting counts as alive.
func (p *ec2Provider) Alive(ctx context.Context, id string) (bool, error) {
	found, err := p.instances(ctx, id)
	if err != nil {
		return false, fmt.Errorf("look for machine %s: %w", id, err)
	}
	for n := range found {
		switch state(&found[n]) {
		case types.InstanceStateNamePending, types.InstanceStateNameRunning:
			return true, nil
		}
	}
	return false, nil
}

// List implements [vm.Provider]. It omits machines that are ending.
func (p *ec2Provider) List(ctx context.Context, owner string) ([]string, error) {
	found, err := p.describe(ctx,
		filter("tag:"+tagOwner, owner),
		filter("instance-state-name", "pending", "running", "stopping", "stopped"))
	if err != nil {
		return nil, fmt.Errorf("list the machines of %s: %w", owner, err)
	}
	seen := map[string]bool{}
	var ids []string
	for n := range found {
		if id := tag(&found[n], tagID); id != "" && !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
