package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"time"
)

// DrainTime limits how long the remaining processes of a group may write after its first process has
// ended.
const DrainTime = time.Second

// Piped is a group whose output goes through a pipe to a writer. Use [StartPiped].
type Piped struct {
	Group   *Group
	reader  *os.File
	out     io.Writer
	drained chan struct{} // closed when the output has been read to its end
	killed  atomic.Bool   // the group has ended: its output should end too
}

// StartPiped starts cmd through start, which may record the process before it starts it, and copies its
// output to out. Both streams share one pipe, which keeps their order.
func StartPiped(cmd *exec.Cmd, out io.Writer, start func() (*Group, error)) (*Piped, error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = writer, writer
	g, err := start()
	_ = writer.Close()
	if err != nil {
		_ = reader.Close()
		return nil, err
	}
	p := &Piped{Group: g, reader: reader, out: out, drained: make(chan struct{})}
	go p.copyOutput()
	return p, nil
}

// copyOutput reads the output to its end. A process that escaped may hold the pipe open after the group
// was killed: then silence counts as the end.
func (p *Piped) copyOutput() {
	defer close(p.drained)
	buf := make([]byte, 32<<10)
	var limit time.Time
	for silent := 0; silent < 3; {
		if p.killed.Load() {
			if limit.IsZero() {
				limit = time.Now().Add(10 * DrainTime)
			}
			if time.Now().After(limit) {
				return
			}
			_ = p.reader.SetReadDeadline(time.Now().Add(DrainTime / 20))
		}
		n, err := p.reader.Read(buf)
		_, _ = p.out.Write(buf[:n])
		switch {
		case err == nil:
			silent = 0
		case errors.Is(err, os.ErrDeadlineExceeded):
			silent++
		default:
			return
		}
	}
}

// Await waits until the first process has ended, or until stop is closed. A Background group must also
// have closed its output, and no process of it may run: a service may put itself in the background and
// close its output. Await reports whether the group ended by itself.
func (p *Piped) Await(stop <-chan struct{}) bool {
	drained, exited := p.drained, p.Group.Exited()
	if p.Group.opts.Background {
		exited = nil
	} else {
		drained = nil
	}
	for {
		select {
		case <-drained:
			drained, exited = nil, p.Group.Exited()
		case <-exited:
			if !p.Group.opts.Background || !p.Group.Remains() {
				return true
			}
			exited = nil // it runs until it is stopped
		case <-stop:
			return false
		}
	}
}

// Finish ends the group after its first process has ended, and returns its state. The other
// processes have DrainTime to finish their output.
func (p *Piped) Finish() *os.ProcessState {
	timer := time.NewTimer(DrainTime)
	select {
	case <-p.drained:
	case <-timer.C:
	}
	timer.Stop()
	return p.Stop(Patience{})
}

// Stop ends the group and reads the rest of its output.
func (p *Piped) Stop(with Patience) *os.ProcessState {
	state := p.Group.Stop(with)
	p.killed.Store(true)
	_ = p.reader.SetReadDeadline(time.Now()) // wakes copyOutput
	<-p.drained
	_ = p.reader.Close()
	return state
}

// Release frees the resources of a Background group that has ended by itself.
func (p *Piped) Release() {
	p.Group.Release()
	_ = p.reader.Close()
}

// Check runs a command beside the group: in the directory of the first process, with its environment and
// user. It returns the exit code and the beginning of the output.
func (p *Piped) Check(ctx context.Context, argv []string) (int, string, error) {
	dir, env := p.Group.Dir(), p.Group.Env()
	file, err := LookPath(argv[0], dir, env)
	if err != nil {
		return 0, "", err
	}
	var out LimitedOutput
	g, err := p.Group.Join(ctx, &exec.Cmd{
		Path: file, Args: argv, Dir: dir, Env: env, Stdout: &out, Stderr: &out, WaitDelay: DrainTime,
	})
	if err != nil {
		return 0, "", fmt.Errorf("start the check: %w", err)
	}
	select {
	case <-g.Exited():
		g.Release()
	case <-ctx.Done():
		g.End()
		return 0, out.String(), ctx.Err()
	}
	return Code(g.State()), out.String(), nil
}
