package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// monitor is a client of QEMU's machine protocol (QMP). It is not safe for concurrent use.
type monitor struct {
	conn   *net.UnixConn
	in     *json.Decoder
	events []message // received while waiting for an answer
}

// message is a message from QEMU.
type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Status string `json:"status"`
	} `json:"data"`
}

// openMonitor waits for QEMU's greeting.
func openMonitor(ctx context.Context, conn *net.UnixConn) (*monitor, error) {
	m := &monitor{conn: conn, in: json.NewDecoder(bufio.NewReader(conn))}
	stop := m.until(ctx)
	var hello message
	err := m.in.Decode(&hello)
	stop()
	if err != nil {
		return nil, failed(ctx, "wait for the emulator", err)
	}
	return m, m.execute(ctx, "qmp_capabilities", nil, nil)
}

// until aborts reads and writes when ctx ends.
func (m *monitor) until(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = m.conn.SetDeadline(time.Unix(1, 0)) })
}

// execute executes a command. result may be nil.
func (m *monitor) execute(ctx context.Context, command string, arguments map[string]any, result any) error {
	return m.executeWith(ctx, nil, command, arguments, result)
}

// executeWith passes a file descriptor along, which getfd needs.
func (m *monitor) executeWith(ctx context.Context, file *os.File, command string, arguments map[string]any, result any) error {
	defer m.until(ctx)()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return failed(ctx, command, err)
	}
	for {
		var answer message
		if err := m.in.Decode(&answer); err != nil {
			return failed(ctx, command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("%s: %s", command, answer.Error.Desc)
		case answer.Event != "":
			m.events = append(m.events, answer)
		case result != nil:
			return json.Unmarshal(answer.Return, result)
		default:
			return nil
		}
	}
}

var errMigration = errors.New("could not read or write the machine's state")

// migrated waits until a migration in either direction is complete.
func (m *monitor) migrated(ctx context.Context) error {
	defer m.until(ctx)()
	for {
		for len(m.events) == 0 {
			var event message
			if err := m.in.Decode(&event); err != nil {
				return failed(ctx, "wait for the memory", err)
			}
			m.events = append(m.events, event)
		}
		event := m.events[0]
		m.events = m.events[1:]
		switch {
		case event.Event != "MIGRATION":
		case event.Data.Status == "completed":
			return nil
		case event.Data.Status == "failed":
			return errMigration
		}
	}
}

// failed returns ctx's error if that stopped the read.
func failed(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// forward matches a line of "info usernet": protocol, file, address, host's port, address, guest's
// port.
var forward = regexp.MustCompile(`TCP\[HOST_FORWARD\]\s+\d+\s+(\S+)\s+(\d+)\s+\S+\s+(\d+)`)

// forwards returns the host's addresses by the guest's ports.
func (m *monitor) forwards(ctx context.Context) (map[int]string, error) {
	var text string
	if err := m.execute(ctx, "human-monitor-command", map[string]any{"command-line": "info usernet"}, &text); err != nil {
		return nil, err
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

// console returns the end of the guest's console.
func (m *monitor) console(ctx context.Context) string {
	var text string
	const tail = 4000
	if err := m.execute(ctx, "ringbuf-read", map[string]any{"device": "console", "size": 65536}, &text); err != nil {
		return err.Error()
	}
	return text[max(0, len(text)-tail):]
}
