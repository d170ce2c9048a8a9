package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/provider"
)

// qemuProvider implements [vm.Provider]. It is safe for concurrent use.
type qemuProvider struct {
	config   Config
	creating provider.Creating

	mu      sync.Mutex
	started map[string]*machine // by this process, by id; guarded by mu
}

// New checks the configuration and starts nothing.
func New(config Config) (vm.Provider, error) {
	c, err := config.complete()
	if err == nil {
		err = os.MkdirAll(filepath.Join(c.StateDir, "machines"), 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("machines with QEMU: %w", err)
	}
	return &qemuProvider{config: c, started: map[string]*machine{}}, nil
}

// Name returns "qemu".
func (p *qemuProvider) Name() string { return "qemu" }

// Create starts a machine, or restores it from the snapshot, and sends its agent the boot (rule
// D6). With Snapshot, the first Create makes the snapshot and the others wait for it.
func (p *qemuProvider) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	m, err := p.create(ctx, spec)
	if err != nil {
		if p.config.guessed && ctx.Err() == nil {
			// In a nested machine, kvm may exist without working.
			err = fmt.Errorf("%w (the accelerator defaulted to kvm because of /dev/kvm: if machines do not run with it, set Accel to tcg)", err)
		}
		return vm.Machine{}, fmt.Errorf("create machine %s with QEMU: %w", spec.ID, err)
	}
	return m, nil
}

// id is the form of a machine's id and of an owner.
var id = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func (p *qemuProvider) create(ctx context.Context, spec vm.Spec) (_ vm.Machine, err error) {
	if !id.MatchString(spec.ID) || !id.MatchString(spec.Owner) {
		return vm.Machine{}, fmt.Errorf("its id or its owner %q is not valid", spec.Owner)
	}
	ctx, end, err := p.creating.Begin(ctx, spec.ID)
	if err != nil {
		return vm.Machine{}, err
	}
	defer end()

	mem, snap := memory{}, (*snapshot)(nil)
	if p.config.Snapshot {
		if snap, err = p.config.snapshot(ctx); err != nil {
			return vm.Machine{}, fmt.Errorf("make the snapshot: %w", err)
		}
		mem.file = snap.memory()
	}
	dir := p.dir(spec.Owner, spec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return vm.Machine{}, err
	}
	m, err := p.config.start(ctx, dir, spec.ID, mem, snap)
	if err != nil {
		return vm.Machine{}, errors.Join(err, os.RemoveAll(dir))
	}
	made, err := p.bringUp(ctx, m, snap, spec)
	if err != nil {
		m.kill()
		return vm.Machine{}, errors.Join(err, os.RemoveAll(dir))
	}
	p.mu.Lock()
	p.started[spec.ID] = m
	p.mu.Unlock()
	return made, nil
}

// bringUp waits until the agent of a started machine serves.
func (p *qemuProvider) bringUp(ctx context.Context, m *machine, snap *snapshot, spec vm.Spec) (vm.Machine, error) {
	if snap != nil {
		if err := m.restore(ctx, snap); err != nil {
			return vm.Machine{}, err
		}
	}
	if err := m.ready(ctx, p.config.BootTimeout, snap != nil); err != nil {
		return vm.Machine{}, err
	}
	forwards, err := m.monitor.forwards(ctx)
	if err != nil {
		return vm.Machine{}, err
	}
	if err := m.boot(ctx, p.config.BootTimeout, spec.Boot); err != nil {
		return vm.Machine{}, fmt.Errorf("send the agent its boot: %w", err)
	}
	m.closeMonitor()
	address := forwards[agentPort]
	if address == "" {
		return vm.Machine{}, errors.New("the emulator forwards no port to the agent")
	}
	delete(forwards, agentPort)
	data, err := json.Marshal(Data{PID: m.cmd.Process.Pid, Forward: forwards})
	return vm.Machine{Address: address, Created: time.Now(), Data: data}, err
}

// Destroy ends the machine's process, waits for its end and removes its directory. A running
// Create of this process is stopped first.
func (p *qemuProvider) Destroy(ctx context.Context, machine string) error {
	if err := p.destroy(ctx, machine); err != nil {
		return fmt.Errorf("destroy machine %s of QEMU: %w", machine, err)
	}
	return nil
}

func (p *qemuProvider) destroy(ctx context.Context, machine string) error {
	if err := p.creating.Stop(ctx, machine); err != nil {
		return err
	}
	dir, err := p.find(machine)
	if err != nil {
		return err
	}
	if err := endProcess(ctx, machine, dir); err != nil {
		return err
	}
	p.mu.Lock()
	ours := p.started[machine]
	delete(p.started, machine)
	p.mu.Unlock()
	if ours != nil {
		<-ours.gone // returns soon: the process has ended
	}
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// Alive reports whether the machine's process runs.
func (p *qemuProvider) Alive(_ context.Context, machine string) (bool, error) {
	dir, err := p.find(machine)
	if err != nil || dir == "" {
		return false, err
	}
	return held(dir)
}

// List returns the machines of an owner.
func (p *qemuProvider) List(_ context.Context, owner string) ([]string, error) {
	if !id.MatchString(owner) {
		return nil, fmt.Errorf("list machines of QEMU: %q is not an owner", owner)
	}
	ids, err := p.machines(func(o, _ string) bool { return o == owner })
	if err != nil {
		return nil, fmt.Errorf("list machines of QEMU: %w", err)
	}
	for i := range ids {
		_, ids[i], _ = strings.Cut(ids[i], ".")
	}
	return ids, nil
}

// machines returns the directory names of the machines that match. An unreadable state directory
// is an error, because an empty result means that the machines are gone.
func (p *qemuProvider) machines(wanted func(owner, machine string) bool) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(p.config.StateDir, "machines"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if owner, machine, ok := strings.Cut(e.Name(), "."); ok && wanted(owner, machine) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// dir returns a machine's directory. It is created before all other parts of the machine.
func (p *qemuProvider) dir(owner, machine string) string {
	return filepath.Join(p.config.StateDir, "machines", owner+"."+machine)
}

// find returns the directory of a machine with unknown owner, or "".
func (p *qemuProvider) find(machine string) (string, error) {
	if !id.MatchString(machine) {
		return "", fmt.Errorf("%q is not a machine", machine)
	}
	names, err := p.machines(func(_, m string) bool { return m == machine })
	if err != nil || len(names) == 0 {
		return "", err
	}
	return filepath.Join(p.config.StateDir, "machines", names[0]), nil
}
