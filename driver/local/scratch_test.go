//go:build unix

package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A scratch directory serves the next step if it is unchanged. No step sees files of another step.
func TestAnUnchangedScratchDirectoryIsReused(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	inspect := `echo $HARNESS_SCRATCH_DIR; stat -c %a $HARNESS_SCRATCH_DIR; ls -A $HARNESS_SCRATCH_DIR; `
	_, first := r.run(sh("first", inspect))
	path, _, _ := strings.Cut(first, "\n")
	require.Equal(t, path+"\n777\n", first)

	for _, soil := range []string{
		`touch $HARNESS_SCRATCH_DIR/.hidden`, `chmod 700 $HARNESS_SCRATCH_DIR`,
		`rmdir $HARNESS_SCRATCH_DIR; ln -s / $HARNESS_SCRATCH_DIR`, `rmdir $HARNESS_SCRATCH_DIR`,
		`d=$HARNESS_SCRATCH_DIR; mkdir $d.new; chmod 777 $d.new; rmdir $d; mv $d.new $d`,
	} {
		_, out := r.run(sh("again", inspect+soil))
		require.Equal(t, path+"\n777\n", out, "it was as new")
		_, out = r.run(sh("after", inspect))
		path, _, _ = strings.Cut(out, "\n")
		require.Equal(t, path+"\n777\n", out, soil)
		require.NotContains(t, first, path, soil)
		first += out
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1, "a directory that is not used again is removed")
}

// Parallel steps have different scratch directories.
func TestParallelStepsHaveDifferentScratchDirectories(t *testing.T) {
	t.Parallel()
	r := newRig(t).init()
	script := `echo $HARNESS_SCRATCH_DIR; while [ ! -e go ]; do sleep 0.02; done`
	outs := make(chan string, 2)
	for _, id := range []string{"one", "two"} {
		go func() {
			_, out := r.run(sh(id, script))
			outs <- out
		}()
	}
	r.run(sh("go", `while [ $(ls $(dirname $HARNESS_SCRATCH_DIR) | grep -c scratch-) -lt 3 ]; do sleep 0.02; done; touch go`))
	require.NotEqual(t, <-outs, <-outs)
}
