package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const output = `goos: linux
BenchmarkDecisions/a<b/waiting=1000-2   	 10	 900 ns/op	 500000 decisions/s	 7 p99-ns
BenchmarkDecisions/a<b/waiting=100000-2 	 10	 900 ns/op	 400000 decisions/s
BenchmarkMasker/secrets=10/plain/writes=32KiB-2 	 10	 9 ns/op	 2000 MB/cpu-s
BenchmarkMasker/secrets=1/plain/writes=32KiB-2 	 10	 9 ns/op	 3000 MB/cpu-s
BenchmarkMasker/secrets=1/plain/writes=32KiB-2 	 10	 9 ns/op	 3500 MB/cpu-s
BenchmarkMasker/secrets=1/plain/writes=32KiB-2 	 10	 9 ns/op	 1 MB/cpu-s
BenchmarkMasker/secrets=1/plain/writes=100B-2 	 10	 9 ns/op	 1000 MB/cpu-s
BenchmarkPickup/store=memory-2 	 10	 9 ns/op	 0.1 p50-ms	 0.6 p99-ms
PASS
`

func TestPlotsHaveThePointsOfTheOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "output")
	require.NoError(t, os.WriteFile(file, []byte(output), 0o600))
	require.NoError(t, run(file, dir))
	for name, points := range map[string]int{"decisions.svg": 2, "masking.svg": 2, "pickup.svg": 2} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, points, strings.Count(string(text), "<circle "), name)
		require.NoError(t, xml.Unmarshal(text, new(struct{})), name)
	}
	d := plots[1].collect(parse(output))
	assert.Equal(t, []string{"1", "10"}, d.positions)
	assert.Equal(t, map[string][]float64{"Masker, plain": {3000, 2000}}, d.series, "the median of several results")
}

func TestAPlotWithoutAResultIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "output")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(output, "Decisions", "Choices")), 0o600))
	require.ErrorContains(t, run(file, t.TempDir()), "decisions.svg")
}
