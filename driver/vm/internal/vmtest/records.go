package vmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/driver/agent"
)

// Record is the part of a machine's record that tests read.
type Record struct {
	ID, Phase, Address string
	CA, Cert, Key      []byte
	Claim              struct{ Token, Transaction string }
	Data               json.RawMessage // provider-specific
	Reserved           json.RawMessage
}

// Records reads the records in a pool's state directory. It ignores a record that disappears
// meanwhile.
func Records(tb testing.TB, dir string) (all []Record) {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "dlite-*.json"))
	require.NoError(tb, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var r Record
		require.NoError(tb, json.Unmarshal(b, &r))
		all = append(all, r)
	}
	return all
}

// Has reports whether a recorded machine belongs to the transaction, or whether the machine's
// agent knows a recorded step. The test stands of drivertest use it.
func Has(tb testing.TB, dir string, r driver.Resource) bool {
	tb.Helper()
	var data struct{ Claim string }
	if json.Unmarshal(r.Data, &data) != nil || data.Claim == "" {
		return false
	}
	for _, m := range Records(tb, dir) {
		if m.Phase == "claimed" && m.Claim.Token == data.Claim {
			return r.Kind == "vm" || m.knows(tb, r.ID)
		}
	}
	return false
}

// knows asks the agent for a step's output.
func (m *Record) knows(tb testing.TB, step string) bool {
	tb.Helper()
	cfg, err := (&agent.Boot{CA: m.CA, Cert: m.Cert, Key: m.Key}).ClientTLS("")
	require.NoError(tb, err)
	t := agent.Transport(cfg)
	defer t.CloseIdleConnections()
	body, err := json.Marshal(map[string]string{"id": step})
	require.NoError(tb, err)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+m.Address+"/stream_output", bytes.NewReader(body))
	require.NoError(tb, err)
	resp, err := t.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
