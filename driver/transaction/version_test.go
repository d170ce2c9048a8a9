package transaction_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordedLongAgo adds a record to a ledger, as an earlier process left it.
func recordedLongAgo(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
	longAgo := time.Now().Add(-time.Hour) // an engine creates no more resources by now
	require.NoError(t, os.Chtimes(path, longAgo, longAgo))
}

// line returns an entry of a record.
func line(version any, entry string) []byte {
	return fmt.Appendf(nil, "%v %08x %s\n", version, crc32.Checksum([]byte(entry), crc32.MakeTable(crc32.Castagnoli)), entry)
}

// Rule T2: every later version removes the resources of a program of version 1. Never rewrite
// this test's file.
func TestARecordOfVersion1IsReadForEver(t *testing.T) {
	t.Parallel()
	golden, err := os.ReadFile("testdata/version1.ledger")
	require.NoError(t, err)
	labels := map[string]string{
		"io.dlite.account": "acct", "io.dlite.delegate": "build-7", "io.dlite.ledger": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"io.dlite.transaction": "stage-1",
	}
	want := []driver.Resource{
		{Kind: "directory", ID: "/var/lib/dlite/dlite-0123456789ab-0123456789abcdef", Labels: labels},
		{Kind: "network", ID: "dlite-0123456789ab-0123456789abcdef", Labels: labels},
		{Kind: "process", ID: "00112233445566778899aabbccddeeff", Data: json.RawMessage(`{"pid":4711,"start":123456789}`)},
	}
	w := newFakeDriver()
	for _, r := range want {
		w.exists[r.Kind+" "+r.ID] = r
	}
	dir := t.TempDir()
	recordedLongAgo(t, filepath.Join(dir, "golden.ledger"), golden)
	s := reopenStages(t, w, dir)
	require.NoError(t, s.Recover(t.Context()))
	assert.Empty(t, w.left())
	assert.Equal(t, [][]driver.Resource{want}, w.cleaned)
	assert.Empty(t, s.records())
}

// Rule T2: a record of a newer version stays unchanged, byte for byte. The error names the
// record and the remedy. All other records are recovered.
func TestARecordOfANewerVersionIsNotChanged(t *testing.T) {
	t.Parallel()
	known := `{"open":{"id":"newer"}}`
	for name, content := range map[string][]byte{
		"the same format":     slices.Concat(line(2, known), line(2, `{"resource":{"kind":"network","id":"newer"}}`)),
		"another format":      []byte("2 whatever comes\n"),
		"nothing else":        []byte("12\n"),
		"after older entries": slices.Concat(line(1, known), line(1, `{"resource":{"kind":"network","id":"newer"}}`), line(2, `{}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFakeDriver()
			dir, record := crashed(t, w)
			newer := driver.Resource{Kind: "network", ID: "newer"}
			w.exists["network newer"] = newer
			path := filepath.Join(dir, "0-newer.ledger") // the first record that Recover reads
			recordedLongAgo(t, path, content)
			s := reopenStages(t, w, dir)
			for range 2 {
				err := s.Recover(t.Context())
				require.ErrorContains(t, err, path)
				require.ErrorContains(t, err, "start a delegate at least as new")
			}
			assert.Equal(t, []string{"network newer"}, w.left())
			assert.NoFileExists(t, record)
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, string(content), string(after))
			assert.Equal(t, stage.Success, statusOf(s.init("tx2")), "the delegate works")
		})
	}
}

// Rule T2: members that a later program adds to a version do not prevent an older one from
// cleaning up. A line without a version is damaged.
func TestUnknownMembersOfARecordAreSkipped(t *testing.T) {
	t.Parallel()
	w := newFakeDriver()
	w.exists["network tx"] = driver.Resource{Kind: "network", ID: "tx"}
	dir := t.TempDir()
	recordedLongAgo(t, filepath.Join(dir, "more.ledger"), slices.Concat(
		line(1, `{"open":{"id":"tx","more":{"a":1}},"more":true}`),
		line(1, `{"more":{"kind":"network","id":"other"}}`),
		line("x", `{"gone":{"kind":"network","id":"tx"}}`),
		line("-1", `{"gone":{"kind":"network","id":"tx"}}`),
		line(1, `{"resource":{"kind":"network","id":"tx","more":[1,2]}}`),
		line(0, `{"gone":{"kind":"network","id":"tx"}}`),
	))
	s := reopenStages(t, w, dir)
	require.NoError(t, s.Recover(t.Context()))
	assert.Empty(t, w.left())
	assert.Equal(t, [][]driver.Resource{{{Kind: "network", ID: "tx"}}}, w.cleaned)
	assert.Empty(t, s.records())
}
