package libvirt_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ours "github.com/delegate-io/dlite/driver/vm/libvirt"
)

// Procedures of libvirt's protocol.
const (
	connectOpen           = 1
	connectClose          = 2
	authList              = 66
	connectListAllDomains = 273
)

// hangingDaemon simulates a daemon without domains. It answers all procedures except one.
func hangingDaemon(t *testing.T, never uint32) ours.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "dlite-lv-") // the path of a socket must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	served := make(chan struct{})
	t.Cleanup(func() { _, _ = l.Close(), <-served })
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn, never)
			_ = conn.Close()
		}
	}()
	return ours.Config{Socket: socket, Image: "/image"}
}

// answer reads calls until the client closes the connection. A packet has its length, six
// numbers (program, version, procedure, type, serial, status), and content that depends on
// the procedure.
func answer(conn net.Conn, never uint32) {
	const head, reply = 28, 1
	for {
		packet := make([]byte, head)
		if _, err := io.ReadFull(conn, packet); err != nil {
			return
		}
		rest := int64(binary.BigEndian.Uint32(packet)) - head
		if _, err := io.CopyN(io.Discard, conn, rest); err != nil {
			return
		}
		procedure := binary.BigEndian.Uint32(packet[12:])
		if procedure == never {
			continue
		}
		body := map[uint32][]byte{authList: make([]byte, 4), connectListAllDomains: make([]byte, 8)}[procedure]
		binary.BigEndian.PutUint32(packet, uint32(head+len(body)))
		binary.BigEndian.PutUint32(packet[16:], reply)
		if _, err := conn.Write(append(packet, body...)); err != nil {
			return
		}
	}
}

// A daemon that hangs, even in its last answer, does not block a caller.
func TestAHangingDaemonDoesNotBlockCallers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		never uint32
		fails bool
	}{
		"never":               {0, false},
		"when it is opened":   {connectOpen, true},
		"when it is asked":    {connectListAllDomains, true},
		"after the last call": {connectClose, false},
		"before it is opened": {authList, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, hangingDaemon(t, c.never))
			limit := 2 * patience
			if c.fails {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			listed := make(chan error, 1)
			go func() {
				ids, err := p.List(ctx, owner)
				assert.Empty(t, ids)
				listed <- err
			}()
			select {
			case err := <-listed:
				if c.fails {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				} else {
					require.NoError(t, err)
				}
			case <-time.After(patience):
				require.Fail(t, "it waits for ever")
			}
		})
	}
}
