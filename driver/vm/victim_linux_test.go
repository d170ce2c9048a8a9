package vm_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/transaction"
	"github.com/delegate-io/dlite/driver/vm"
	"github.com/delegate-io/dlite/driver/vm/internal/vmtest"
	"github.com/delegate-io/dlite/driver/vm/qemu"
	"github.com/delegate-io/dlite/internal/envelope"
	"github.com/delegate-io/dlite/internal/testbed"
	"github.com/delegate-io/dlite/logger"
	"github.com/delegate-io/dlite/task"
	"github.com/delegate-io/dlite/task/stage"
)

// victimEnv turns the program of the test into a delegate that is killed.
const victimEnv = "DLITE_TEST_VM_VICTIM"

// orders are the orders for a victim, as JSON in its environment.
type orders struct {
	Dir, Agent string
	Uses       int
	// QEMU selects virtual machines. Otherwise the machines are processes.
	QEMU *qemu.Config
	// Discard lets the victim destroy its warm machines at a normal end.
	Discard bool
	// The victim kills itself at the Nth passing of the fault point Fault.
	Fault string
	N     int
	// Rounds is the number of stages of each worker; 0 means without end. At its end the
	// victim prints the fault points that it passed, as JSON.
	Rounds int
	// Marker is in the environment of all steps.
	Marker string
	// If Script is set, the victim only runs this script as the one step of a transaction. It
	// prints the output of the step, and writes the data for the next process to a file.
	Script string
}

// size returns the minimum and maximum of the victim's pool, and the number of concurrent
// stages: one more than there are warm machines.
func (o *orders) size() (least, most, workers int) {
	if o.QEMU != nil {
		return 1, 2, 2
	}
	return 2, 4, 3
}

// open creates the provider of the machines.
func (o *orders) open() (vm.Provider, error) {
	if o.QEMU != nil {
		return qemu.New(*o.QEMU)
	}
	return vmtest.NewProcesses(filepath.Join(o.Dir, "machines"), o.Agent), nil
}

func victim() {
	if err := runVictim(); err != nil {
		fmt.Fprintln(os.Stderr, "victim:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runVictim is a delegate with one pool and without a manager: it creates its tasks itself.
// It prints "recovered" when it has cleaned up after the previous process, and "full" when
// its pool is full. Then it waits for a line before it works.
func runVictim() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &o); err != nil {
		return err
	}
	ctx := context.Background()
	faults := &testbed.Faults{At: o.Fault, N: o.N}
	provider, err := o.open()
	if err != nil {
		return err
	}
	least, most, workers := o.size()
	pool, err := vm.NewPool(&faultyProvider{provider, faults}, vm.PoolConfig{
		Name: "linux", Dir: filepath.Join(o.Dir, "pool"), Min: least, Max: most, MaxUses: o.Uses, KeepWarm: !o.Discard,
		HealthTimeout: 30 * time.Second, // an emulated machine on a busy host
	})
	if err != nil {
		return err
	}
	pool.PassFaults(faults.Pass)
	if err := pool.Start(ctx); err != nil {
		return err
	}
	d, err := vm.New([]*vm.Pool{pool})
	if err != nil {
		return err
	}
	if o.Script != "" {
		return runScript(ctx, d, &o)
	}
	stages := transaction.New(&faultyDriver{d, faults}, transaction.WithLedger(filepath.Join(o.Dir, "ledger")), transaction.WithLog(dropLog),
		transaction.WithInfra(transaction.VM))
	if err := stages.Recover(ctx); err != nil {
		return err
	}
	fmt.Println("recovered")
	for s := pool.Stats(); s.Warm < least || s.Reserved+s.Claimed+s.Creating+s.Destroying > 0; s = pool.Stats() {
		<-time.After(5 * time.Millisecond)
	}
	fmt.Println("full")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	fmt.Println("working")
	var work sync.WaitGroup
	for worker := range workers {
		work.Go(func() {
			for round := 0; o.Rounds == 0 || round < o.Rounds; round++ {
				if err := runStage(ctx, stages, fmt.Sprintf("%d-%d-%d", os.Getpid(), worker, round), o.Marker); err != nil {
					fmt.Fprintln(os.Stderr, "victim:", err)
				}
			}
		})
	}
	work.Wait()
	if err := errors.Join(stages.Close(ctx), d.Close(), pool.Close(ctx)); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(faults.Counts())
}

const capacityTask = "DLITE_CI_VM_CAPACITY_TASK"

// begun has the data that another process needs to continue a step.
type begun struct {
	Env     *driver.Environment
	Step    driver.Step
	Records []driver.Resource
}

func (o *orders) begunPath() string { return filepath.Join(o.Dir, "begun.json") }

// runScript runs a step. The data for the next process is written before the step starts,
// because the process may be killed.
func runScript(ctx context.Context, d *vm.Driver, o *orders) error {
	b := &begun{Env: &driver.Environment{ID: "script"}, Step: driver.Step{Step: sh("step", o.Script)}}
	l := &memoryLedger{added: func(rs []driver.Resource) error {
		b.Records = rs
		text, err := json.Marshal(b)
		if err != nil {
			return err
		}
		return os.WriteFile(o.begunPath(), text, 0o600)
	}}
	if err := d.Init(ctx, b.Env, l); err != nil {
		return err
	}
	_, err := d.Execute(ctx, b.Env, &b.Step, os.Stdout, l)
	return err
}

func dropLog(context.Context, logger.StreamConfig) logger.TaskLog { return noLog{io.Discard} }

type noLog struct{ io.Writer }

func (noLog) Close(context.Context) error { return nil }

// reservation returns a DLITE_CI_VM_CAPACITY_TASK.
func reservation(id string, timeout time.Duration) *envelope.Capacity {
	c := &envelope.Capacity{}
	c.Reservation.ID, c.Reservation.Timeout = id, timeout.Milliseconds()
	return c
}

// runStage runs an unused reservation, a used one, an init, a detached step, a step and a
// cleanup.
func runStage(ctx context.Context, stages *transaction.Stages, id, marker string) error {
	service := sh("service", "sleep 600 & setsid sleep 600 & wait")
	service.Detach = true
	step := sh("step", "echo x > file; sleep 0.05; cat file")
	for _, s := range []*stage.Step{&service, &step} {
		s.Environment = map[string]string{"MARKER": marker}
	}
	for i, t := range []struct {
		typ  string
		data any
	}{
		{capacityTask, reservation(id+"-never", 100*time.Millisecond)},
		{capacityTask, reservation(id, time.Second)},
		{"vm_init", stage.InitRequest{GroupID: id, Network: stage.Network{ID: "net-" + id}}},
		{"vm_execute", stage.ExecuteRequest{GroupID: id, Step: service}},
		{"vm_execute", stage.ExecuteRequest{GroupID: id, Step: step}},
		{"vm_cleanup", stage.CleanupRequest{GroupID: id}},
	} {
		data, err := json.Marshal(t.data)
		if err != nil {
			return err
		}
		r, _ := task.Serve(ctx, stages.Routes()[t.typ], &task.Task{ID: fmt.Sprintf("%s-%d", id, i), Type: t.typ, Data: data})
		var answer stage.ExecuteResponse
		if err := json.Unmarshal(r.Data, &answer); err != nil || answer.Status != stage.Success {
			return fmt.Errorf("%s: %s %s (%w)", t.typ, answer.Status, answer.ErrorMessage, err)
		}
	}
	return nil
}

type faultyProvider struct {
	vm.Provider
	faults *testbed.Faults
}

func (p *faultyProvider) Create(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	p.faults.Pass("before create")
	defer p.faults.Pass("after create")
	boot := spec.Boot
	spec.Boot = func() []byte {
		p.faults.Pass("while it is created")
		return boot()
	}
	return p.Provider.Create(ctx, spec)
}

func (p *faultyProvider) Destroy(ctx context.Context, id string) error {
	p.faults.Pass("before destroy")
	defer p.faults.Pass("after destroy")
	return p.Provider.Destroy(ctx, id)
}

func (p *faultyProvider) List(ctx context.Context, owner string) ([]string, error) {
	p.faults.Pass("before list")
	defer p.faults.Pass("after list")
	return p.Provider.List(ctx, owner)
}

type faultyDriver struct {
	*vm.Driver
	faults *testbed.Faults
}

func (d *faultyDriver) Init(ctx context.Context, env *driver.Environment, l driver.Ledger) error {
	defer d.faults.Pass("after init")
	return d.Driver.Init(ctx, env, &faultyLedger{l, d.faults})
}

func (d *faultyDriver) Execute(ctx context.Context, env *driver.Environment, s *driver.Step, out io.Writer, l driver.Ledger) (*driver.Result, error) {
	defer d.faults.Pass("after execute")
	return d.Driver.Execute(ctx, env, s, out, &faultyLedger{l, d.faults})
}

func (d *faultyDriver) Cleanup(ctx context.Context, rs []driver.Resource) ([]driver.Resource, error) {
	d.faults.Pass("before cleanup")
	defer d.faults.Pass("after cleanup")
	return d.Driver.Cleanup(ctx, rs)
}

type faultyLedger struct {
	driver.Ledger
	faults *testbed.Faults
}

func (l *faultyLedger) Record(ctx context.Context, r driver.Resource) error {
	l.faults.Pass("before record " + r.Kind)
	defer l.faults.Pass("after record " + r.Kind)
	return l.Ledger.Record(ctx, r)
}
