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
)

const (
	// callTime bounds what the daemon is asked for at once.
	callTime = time.Minute
	// leaveTime bounds the wait for its answer that it has heard the end of that.
	leaveTime = time.Second
)

// Provider is a [vm.Provider]. It is safe for concurrent use, and keeps no
// connection: the daemon may be restarted at any time.
type Provider struct {
	config   Config
	creating vm.Creating
}

// New checks the configuration. It asks the daemon for nothing.
func New(config Config) (*Provider, error) {
	c, err := config.complete()
	if err != nil {
		return nil, fmt.Errorf("machines with libvirt: %w", err)
	}
	return &Provider{config: c}, nil
}

// Name is "libvirt".
func (p *Provider) Name() string { return "libvirt" }

// with connects to the daemon, and gives up what is under way when ctx ends.
func (p *Provider) with(ctx context.Context, do func(daemon *libvirt.Libvirt) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.config.Socket)
	if err != nil {
		return fmt.Errorf("connect to libvirt (does the daemon run?): %w", err)
	}
	defer conn.Close() //nolint:errcheck // all is said
	// The library takes the end of a deadline for something that passes.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	daemon := libvirt.NewWithDialer(dialers.NewAlreadyConnected(conn))
	if err := daemon.ConnectToURI(libvirt.ConnectURI(p.config.URI)); err != nil {
		return ended(ctx, fmt.Errorf("open %s of libvirt: %w", p.config.URI, err))
	}
	err = do(daemon)
	// To leave without a word is an error in the daemon's log, and to wait for its
	// answer takes for ever where it hangs.
	leaving := time.AfterFunc(leaveTime, func() { _ = conn.Close() })
	defer leaving.Stop()
	_ = daemon.Disconnect()
	return ended(ctx, err)
}

// ended is ctx's cause where that is why a call failed.
func ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// id is the form of a machine's id and of an owner.
var id = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Create defines a domain, makes its disk, starts it and tells its agent what it
// needs (SPEC D6).
func (p *Provider) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	m, err := p.create(ctx, spec)
	if err != nil {
		return vm.Machine{}, fmt.Errorf("create machine %s with libvirt: %w", spec.ID, err)
	}
	return m, nil
}

func (p *Provider) create(ctx context.Context, spec vm.Spec) (_ vm.Machine, err error) {
	if !id.MatchString(spec.ID) || !id.MatchString(spec.Owner) {
		return vm.Machine{}, fmt.Errorf("its id or its owner %q is none", spec.Owner)
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
	data := Data{}
	var address string
	// The daemon goes on with what it was asked for when nobody listens any more, and
	// could make a domain after we have looked for one to remove. So a call is waited
	// for, and ctx looked at in between.
	err = p.with(context.WithoutCancel(ctx), func(daemon *libvirt.Libvirt) error {
		domain, err := p.start(ctx, daemon, spec)
		if err != nil {
			return err
		}
		data.UUID = hex.EncodeToString(domain.UUID[:])
		if data.Forward, err = forwards(daemon, domain); err != nil {
			return err
		}
		if address = data.Forward[AgentPort]; address == "" {
			return errors.New("the domain forwards no port to the agent")
		}
		delete(data.Forward, AgentPort)
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

// start makes what there is of a machine, the domain first: from then on List
// knows of it.
func (p *Provider) start(ctx context.Context, daemon *libvirt.Libvirt, spec vm.Spec) (libvirt.Domain, error) {
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

// forward is a line of QEMU's "info usernet": protocol, file, address, host's port,
// address, guest's port.
var forward = regexp.MustCompile(`TCP\[HOST_FORWARD\]\s+\d+\s+(\S+)\s+(\d+)\s+\S+\s+(\d+)`)

// forwards are the host's ports by those of the guest.
func forwards(daemon *libvirt.Libvirt, domain libvirt.Domain) (map[int]string, error) {
	const human = 1 // VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP
	text, err := daemon.QEMUDomainMonitorCommand(domain, "info usernet", human)
	if err != nil {
		return nil, fmt.Errorf("ask for the machine's ports: %w", err)
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

// boot tells the agent what it needs, at the port's socket. The agent may have said
// that it is ready before anybody listened.
func (p *Provider) boot(ctx context.Context, path string, boot func() []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.config.BootTimeout, fmt.Errorf("the agent was not ready within %v", p.config.BootTimeout))
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("connect to the serial port: %w", err)
	}
	defer conn.Close() //nolint:errcheck // the agent has said that it has its boot
	port := vm.NewPort(conn)
	if err := port.Ready(ctx, true); err != nil {
		return err
	}
	return port.Boot(ctx, boot)
}

// Destroy ends the domain, deletes its disk and undefines it. A Create of this
// process that is under way ends first.
func (p *Provider) Destroy(ctx context.Context, machine string) error {
	err := fmt.Errorf("%q is no machine", machine)
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

func (p *Provider) remove(ctx context.Context, machine string) error {
	return p.with(ctx, func(daemon *libvirt.Libvirt) error {
		domain, err := daemon.DomainLookupByName(machine)
		if err != nil && !is(err, libvirt.ErrNoDomain) {
			return fmt.Errorf("find the domain: %w", err)
		}
		defined := err == nil
		if defined {
			// It may have ended, or gone, meanwhile.
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

// Alive reports whether the domain runs. One that is paused, for want of disk
// space for example, does not.
func (p *Provider) Alive(ctx context.Context, machine string) (alive bool, err error) {
	if !id.MatchString(machine) {
		return false, fmt.Errorf("%q is no machine", machine)
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
		return false, fmt.Errorf("look at machine %s of libvirt: %w", machine, err)
	}
	return alive, nil
}

// List returns the machines whose metadata has the owner.
func (p *Provider) List(ctx context.Context, of string) (ids []string, err error) {
	if !id.MatchString(of) {
		return nil, fmt.Errorf("list machines of libvirt: %q is no owner", of)
	}
	err = p.with(ctx, func(daemon *libvirt.Libvirt) error {
		domains, _, err := daemon.ConnectListAllDomains(1, 0)
		if err != nil {
			return err
		}
		for _, d := range domains {
			text, err := daemon.DomainGetMetadata(d, int32(libvirt.DomainMetadataElement), libvirt.OptString{namespace}, 0)
			switch {
			case is(err, libvirt.ErrNoDomain, libvirt.ErrNoDomainMetadata): // gone, or somebody else's
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
