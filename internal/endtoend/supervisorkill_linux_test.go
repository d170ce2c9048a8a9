package endtoend_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	osprocess "github.com/delegate-io/dlite/internal/process"
)

// supervisors returns the supervisors that the delegate has started, while the delegate runs.
func (s *survival) supervisors() []osprocess.Record {
	s.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(s.t, err)
	var all []osprocess.Record
	for _, file := range files {
		line, _ := os.ReadFile(file) // a missing file means that the process has ended
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "stat"))
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if string(line) != "dlite-supervisor\x00" || len(fields) < 2 || fields[1] != strconv.Itoa(s.cmd.Process.Pid) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(s.t, err)
		if record, err := osprocess.NewRecord(pid); err == nil {
			all = append(all, record)
		}
	}
	return all
}

// Rules T2, T5: whether the supervisors of stages are killed, the delegate, or both, nothing is left, no
// step runs twice, and a stage that fails has the reason.
func TestStagesEndWithAReasonWhenTheirSupervisorsAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	s := newSurvival(t)
	s.host = true
	var killed []osprocess.Record
	rounds := 0
	s.harm = func() {
		running := s.supervisors()
		rounds++
		if rounds%4 == 0 {
			s.kill()
		}
		for _, one := range running {
			if rand.N(2) == 0 && one.Running() {
				killed = append(killed, one)
				require.NoError(t, syscall.Kill(one.PID, syscall.SIGKILL))
			}
		}
		if rounds%4 == 1 {
			s.kill()
		}
	}
	s.survive(restarts / 2)
	require.NotEmpty(t, killed)
	t.Logf("killed %d supervisors", len(killed))
}
