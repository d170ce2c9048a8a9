package provider

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

	"github.com/delegate-io/dlite/internal/bootport"
)

// PortName is the name of the virtio serial port at which a machine's agent waits for its boot.
const PortName = "io.dlite.agent"

// Port is the host's end of a machine's serial port, for its provider. It performs the handshake that
// [bootport.Ready] describes. It is not safe for concurrent use.
type Port struct {
	conn  net.Conn
	lines *bufio.Reader
}

// NewPort returns a port on conn. The caller closes conn.
func NewPort(conn net.Conn) *Port {
	const longest = 4096 // bytes of an agent's line; longer lines arrive in parts
	return &Port{conn: conn, lines: bufio.NewReaderSize(conn, longest)}
}

// Ready waits until the agent waits for its boot. Set ask if the agent may have reported that
// earlier, for example before a snapshot. If ctx ends first, the error is its cause.
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
		if line == bootport.Ready {
			return nil
		}
	}
}

// Boot sends the boot, and returns when the agent has applied it. It calls boot as late as
// possible, because the boot contains the time.
func (p *Port) Boot(ctx context.Context, boot func() []byte) error {
	defer p.until(ctx)()
	var text bytes.Buffer
	if err := json.Compact(&text, boot()); err != nil {
		return errors.New("the boot is not JSON") // the decoder's error could quote the boot
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
		if why, failed := strings.CutPrefix(line, bootport.Failed); failed {
			return fmt.Errorf("the agent cannot use its boot: %s", strings.TrimSpace(why))
		}
		if line == bootport.Booted {
			return nil
		}
	}
}

// line reads a line without carriage returns, which terminals add. It splits lines that are too
// long.
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

// failed returns ctx's cause if that stopped the read.
func (p *Port) failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%s: %w", what, err)
}
