package libvirt

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket/dialers"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/provider"
)

const (
	// callTime limits a series of calls to the daemon.
	callTime = time.Minute
	// leaveTime limits the wait for the daemon's answer to the end of the connection.
	leaveTime = time.Second
)

// libvirtProvider implements [vm.Provider]. It is safe for concurrent use. It keeps no connection, so the
// daemon may restart at any time.
type libvirtProvider struct {
	config   Config
	creating provider.Creating
}

// New checks the configuration. It does not call the daemon.
func New(config Config) (vm.Provider, error) {
	c, err := config.complete()
	if err != nil {
		return nil, fmt.Errorf("machines with libvirt: %w", err)
	}
	return &libvirtProvider{config: c}, nil
}

// Name returns "libvirt".
func (p *libvirtProvider) Name() string { return "libvirt" }

// with connects to the daemon and calls do. It aborts running calls when ctx ends.
func (p *libvirtProvider) with(ctx context.Context, do func(daemon *libvirt.Libvirt) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.config.Socket)
	if err != nil {
		return fmt.Errorf("connect to libvirt (does the daemon run?): %w", err)
	}
	defer conn.Close() //nolint:errcheck // all calls are complete
	// The library retries after the end of a deadline.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	daemon := libvirt.NewWithDialer(dialers.NewAlreadyConnected(conn))
	if err := daemon.ConnectToURI(libvirt.ConnectURI(p.config.URI)); err != nil {
		return ended(ctx, fmt.Errorf("open %s of libvirt: %w", p.config.URI, err))
	}
	err = do(daemon)
	// The daemon logs an error if a client leaves without saying so. A hanging daemon never
	// answers, so the wait is limited.
	leaving := time.AfterFunc(leaveTime, func() { _ = conn.Close() })
	defer leaving.Stop()
	_ = daemon.Disconnect()
	return ended(ctx, err)
}

// ended returns ctx's cause if that made the call fail.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// id is the form of a machine's id and of an owner.
var id = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Create defines a domain, creates its disk, starts it and sends its agent the boot (rule D6).
func (p *libvirtProvider) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	m, err := p.create(ctx, spec)
	if err != nil {
		return vm.Machine{}, fmt.Errorf("create machine %s with libvirt: %w", spec.ID, err)
	}
	return m, nil
}

func (p *libvirtProvider) create(ctx context.Context, spec vm.Spec) (_ vm.Machine, err error) {
	if !id.MatchString(spec.ID) || !id.MatchString(spec.Owner) {
		return vm.Machine{}, fmt.Errorf("its id or its owner %q is not valid", spec.Owner)
	}
	ctx, end, err := p.creating.Begin(ctx, spec.ID)
	if err != nil {
		return vm.Machine{}, err
	}
	defer end()
	defer func() {
		if err != nil {
			removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
			defer cancel()
			err = errors.Join(err, p.remove(removing, spec.ID))
		}
	}()

	var path string
	data := machineData{}
	var address string
	// The daemon finishes a call whose client has gone, and could create a domain after Destroy
	// looked for it. Create therefore waits for each call and checks ctx in between.
	err = p.with(context.WithoutCancel(ctx), func(daemon *libvirt.Libvirt) error {
		domain, err := p.start(ctx, daemon, spec)
		if err != nil {
			return err
		}
		data.UUID = hex.EncodeToString(domain.UUID[:])
		if data.Forward, err = forwards(daemon, domain); err != nil {
			return err
		}
		if address = data.Forward[agentPort]; address == "" {
			return errors.New("the domain forwards no port to the agent")
		}
		delete(data.Forward, agentPort)
		text, err := daemon.DomainGetXMLDesc(domain, 0)
		if err != nil {
			return fmt.Errorf("read the domain: %w", err)
		}
		path, err = channel(text)
		return err
	})
	if err != nil {
		return vm.Machine{}, err
	}
	if err := p.boot(ctx, path, spec.Boot); err != nil {
		return vm.Machine{}, err
	}
	text, err := json.Marshal(data)
	return vm.Machine{Address: address, Created: time.Now(), Data: text}, err
}

// start creates the parts of a machine, the domain first: from then on List returns it.
func (p *libvirtProvider) start(ctx context.Context, daemon *libvirt.Libvirt, spec vm.Spec) (libvirt.Domain, error) {
	none := libvirt.Domain{}
	disk := ""
	if p.config.Image != "" {
		var err error
		if disk, err = p.diskPath(daemon, spec.ID); err != nil {
			return none, err
		}
	}
	text, err := p.xml(spec, disk)
	if err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	domain, err := daemon.DomainDefineXML(text)
	if err != nil {
		return none, fmt.Errorf("define the domain: %w", err)
	}
	if disk != "" {
		if err := p.makeDisk(daemon, spec.ID); err != nil {
			return none, err
		}
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if err := daemon.DomainCreate(domain); err != nil {
		return none, fmt.Errorf("start the domain: %w", err)
	}
	return domain, nil
}

// forward matches a line of QEMU's "info usernet": protocol, file, address, host's port, address,
// guest's port.
var forward = regexp.MustCompile(`TCP\[HOST_FORWARD\]\s+\d+\s+(\S+)\s+(\d+)\s+\S+\s+(\d+)`)

// forwards returns the host's addresses by the guest's ports.
func forwards(daemon *libvirt.Libvirt, domain libvirt.Domain) (map[int]string, error) {
	const human = 1 // VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
	text, err := daemon.QEMUDomainMonitorCommand(domain, "info usernet", human)
	if err != nil {
		return nil, fmt.Errorf("read the machine's ports: %w", err)
	}
	found := map[int]string{}
	for _, f := range forward.FindAllStringSubmatch(text, -1) {
		guest, err := strconv.Atoi(f[3])
		if err != nil {
			return nil, fmt.Errorf("info usernet: %w", err)
		}
		found[guest] = net.JoinHostPort(f[1], f[2])
	}
	return found, nil
}

// boot sends the boot to the agent at the port's socket. The agent may have reported earlier that
// it is ready.
func (p *libvirtProvider) boot(ctx context.Context, path string, boot func() []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.BootTimeout, fmt.Errorf("the agent was not ready within %v", p.config.BootTimeout))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("connect to the serial port: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the agent has confirmed its boot
	port := provider.NewPort(conn)
	if err := port.Ready(ctx, true); err != nil {
		return err
	}
	return port.Boot(ctx, boot)
}

// Destroy ends the domain, deletes its disk and undefines it. A running Create of this process is
// stopped first.
func (p *libvirtProvider) Destroy(ctx context.Context, machine string) error {
	err := fmt.Errorf("%q is not a machine", machine)
	if id.MatchString(machine) {
		if err = p.creating.Stop(ctx, machine); err == nil {
			err = p.remove(ctx, machine)
		}
	}
	if err != nil {
		return fmt.Errorf("destroy machine %s of libvirt: %w", machine, err)
	}
	return nil
}

func (p *libvirtProvider) remove(ctx context.Context, machine string) error {
	return p.with(ctx, func(daemon *libvirt.Libvirt) error {
		domain, err := daemon.DomainLookupByName(machine)
		if err != nil && !is(err, libvirt.ErrNoDomain) {
			return fmt.Errorf("find the domain: %w", err)
		}
		defined := err == nil
		if defined {
			// The domain may have ended meanwhile.
			err := daemon.DomainDestroy(domain)
			if err != nil && !is(err, libvirt.ErrNoDomain, libvirt.ErrOperationInvalid) {
				return fmt.Errorf("end the domain: %w", err)
			}
		}
		if p.config.Image != "" {
			if err := p.deleteDisk(daemon, machine); err != nil {
				return err
			}
		}
		if !defined {
			return nil
		}
		err = daemon.DomainUndefineFlags(domain, libvirt.DomainUndefineManagedSave|libvirt.DomainUndefineNvram|libvirt.DomainUndefineSnapshotsMetadata)
		if err != nil && !is(err, libvirt.ErrNoDomain) {
			return fmt.Errorf("undefine the domain: %w", err)
		}
		return nil
	})
}

// Alive reports whether the domain runs. A paused domain does not, for example without disk space.
func (p *libvirtProvider) Alive(ctx context.Context, machine string) (alive bool, err error) {
	if !id.MatchString(machine) {
		return false, fmt.Errorf("%q is not a machine", machine)
	}
	err = p.with(ctx, func(daemon *libvirt.Libvirt) error {
		domain, err := daemon.DomainLookupByName(machine)
		if err != nil {
			return err
		}
		state, _, err := daemon.DomainGetState(domain, 0)
		alive = slices.Contains([]libvirt.DomainState{libvirt.DomainRunning, libvirt.DomainBlocked}, libvirt.DomainState(state))
		return err
	})
	if is(err, libvirt.ErrNoDomain) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the state of machine %s of libvirt: %w", machine, err)
	}
	return alive, nil
}

// List returns the machines whose metadata has the owner.
func (p *libvirtProvider) List(ctx context.Context, of string) (ids []string, err error) {
	if !id.MatchString(of) {
		return nil, fmt.Errorf("list machines of libvirt: %q is not an owner", of)
	}
	err = p.with(ctx, func(daemon *libvirt.Libvirt) error {
		domains, _, err := daemon.ConnectListAllDomains(1, 0)
		if err != nil {
			return err
		}
		for _, d := range domains {
			text, err := daemon.DomainGetMetadata(d, int32(libvirt.DomainMetadataElement), libvirt.OptString{namespace}, 0)
			switch {
			case is(err, libvirt.ErrNoDomain, libvirt.ErrNoDomainMetadata): // gone, or not a machine of this driver
			case err != nil:
				return fmt.Errorf("read the metadata of %s: %w", d.Name, err)
			case owner(text) == of:
				ids = append(ids, d.Name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list machines of libvirt: %w", err)
	}
	return ids, nil
}
