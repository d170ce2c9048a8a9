package provider_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver/vm/internal/provider"
)

// machineEnd runs do as the agent's side of a port, and returns the host's side.
func machineEnd(t *testing.T, do func(in *bufio.Reader, out io.Writer)) *provider.Port {
	t.Helper()
	ours, theirs := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer theirs.Close() //nolint:errcheck // of a pipe
		do(bufio.NewReader(theirs), theirs)
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		<-ended
	})
	return provider.NewPort(ours)
}

func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// Rule D6: the boot is created when the agent waits, is sent as one line, and counts when the
// agent has applied it.
func TestAnAgentGetsItsBootAtThePort(t *testing.T) {
	t.Parallel()
	asked, boot := make(chan string, 1), make(chan string, 1)
	p := machineEnd(t, func(in *bufio.Reader, out io.Writer) {
		line, _ := in.ReadString('\n')
		asked <- line
		say(out, strings.Repeat("kernel: noise ", 1000)+"\r\nready\r\nready\n")
		line, _ = in.ReadString('\n')
		boot <- line
		say(out, "booted\n")
	})
	require.NoError(t, p.Ready(t.Context(), true))
	require.NoError(t, p.Boot(t.Context(), func() []byte {
		assert.Equal(t, "\n", <-asked, "the boot is asked for only now")
		return []byte("{\n  \"time\": 1\n}\n")
	}))
	assert.Equal(t, "{\"time\":1}\n", <-boot)
}

func TestAPortReportsFailures(t *testing.T) {
	t.Parallel()
	refuse := func(in *bufio.Reader, out io.Writer) {
		_, _ = in.ReadString('\n')
		say(out, "failed the key is invalid\n")
	}
	boot := func() []byte { return []byte(`{"key":"visibly-fake"}`) }
	require.EqualError(t, machineEnd(t, refuse).Boot(t.Context(), boot), "the agent cannot use its boot: the key is invalid")

	end := func(in *bufio.Reader, _ io.Writer) { _, _ = in.ReadString('\n') }
	require.ErrorIs(t, machineEnd(t, end).Boot(t.Context(), boot), io.ErrUnexpectedEOF)
	require.ErrorIs(t, machineEnd(t, end).Ready(t.Context(), true), io.ErrUnexpectedEOF)

	notJSON := machineEnd(t, end).Boot(t.Context(), func() []byte { return []byte(`"visibly-fake`) })
	require.ErrorContains(t, notJSON, "not JSON")
	assert.NotContains(t, notJSON.Error(), "visibly-fake")

	why := errors.New("the pool is closed")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	silent := func(in *bufio.Reader, _ io.Writer) { _, _ = io.Copy(io.Discard, in) }
	require.ErrorIs(t, machineEnd(t, silent).Ready(ctx, false), why)
	require.ErrorIs(t, machineEnd(t, silent).Boot(ctx, boot), why)
}
