package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/delegate-io/dlite/driver/agent"
)

// PortName is what the virtio serial port is called where a machine's agent waits
// for its boot.
const PortName = "io.dlite.agent"

// Port is the host's end of a machine's serial port, for providers: it says there
// what [agent.PortReady] describes. It is for one goroutine.
type Port struct {
	conn  net.Conn
	lines *bufio.Reader
}

// NewPort does not take conn over: who has made it closes it.
func NewPort(conn net.Conn) *Port {
	const longest = 4096 // of an agent's line; what is longer comes in parts
	return &Port{conn: conn, lines: bufio.NewReaderSize(conn, longest)}
}

// Ready returns when the agent waits for its boot. Where the agent may have said so
// already, before a snapshot or while nobody listened, it has to be asked. An
// error is ctx's cause when ctx ends first.
func (p *Port) Ready(ctx context.Context, ask bool) error {
	defer p.until(ctx)()
	if ask {
		if _, err := p.conn.Write([]byte("\n")); err != nil {
			return p.failed(ctx, "ask the agent", err)
		}
	}
	for {
		line, err := p.line()
		if err != nil {
			return p.failed(ctx, "wait for the agent", err)
		}
		if line == agent.PortReady {
			return nil
		}
	}
}

// Boot calls boot when all is ready, as it has the time in it, sends what that
// returns and returns when the agent has taken it over.
func (p *Port) Boot(ctx context.Context, boot func() []byte) error {
	defer p.until(ctx)()
	var text bytes.Buffer
	if err := json.Compact(&text, boot()); err != nil {
		return errors.New("the boot is not JSON") // the error could quote it
	}
	text.WriteByte('\n')
	if _, err := p.conn.Write(text.Bytes()); err != nil {
		return p.failed(ctx, "send the boot", err)
	}
	for {
		line, err := p.line()
		if err != nil {
			return p.failed(ctx, "wait until the agent has its boot", err)
		}
		if why, failed := strings.CutPrefix(line, agent.PortFailed); failed {
			return fmt.Errorf("the agent cannot use its boot: %s", strings.TrimSpace(why))
		}
		if line == agent.PortBooted {
			return nil
		}
	}
}

// line leaves out carriage returns, which terminals add, and cuts what is no line
// of an agent.
func (p *Port) line() (string, error) {
	text, err := p.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

func (p *Port) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = p.conn.SetDeadline(time.Unix(1, 0)) })
}

// failed is ctx's cause where that is why reading stopped.
func (p *Port) failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", what, err)
}
