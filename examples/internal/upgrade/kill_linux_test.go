package upgrade

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bound is far longer than a registration takes.
const bound = 90 * time.Second

// Rule G4: a delegate that is killed at any step of its upgrade leaves a program that works. Started again, it ends the
// upgrade: the old or the new version runs, never none and never half of one.
func TestAKillAtEachStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	counts := make(chan string, 100)
	t.Run("steps", func(t *testing.T) {
		for step, want := range map[string]string{
			"left":            oldVersion, // at the kill
			"begin staged":    oldVersion,
			"trial":           oldVersion,
			"trying":          oldVersion, // the process of the trial ends too
			"tried":           oldVersion,
			"swap":            oldVersion,
			"kept":            oldVersion,
			"replaced":        newVersion,
			"swapped":         newVersion,
			"begin probation": newVersion,
			"probation":       newVersion,
			"registered":      newVersion,
			"done":            newVersion,
		} {
			t.Run(step, func(t *testing.T) {
				t.Parallel()
				i := r.install(t, "killed at "+step)
				i.start(step)
				i.until("the registration", func() bool { return i.delegate().Version == oldVersion })
				i.stage(newVersion, bound)
				i.waitKilled()
				assert.Equal(t, want, i.version(), "in the place of the program")
				i.start("")
				assert.Equal(t, newVersion, i.settled())
				i.until("one process of one program", func() bool { return i.processes() == 1 })
				previous := *i
				previous.place.program = i.place.previous()
				assert.Equal(t, oldVersion, previous.version())
				assert.NoFileExists(t, i.place.next())
				counts <- want
			})
		}
	})
	t.Logf("%d kills at steps, %d of them before the new program had its place", len(counts), count(counts, oldVersion))
}

func count(all chan string, wanted string) (n int) {
	close(all)
	for s := range all {
		if s == wanted {
			n++
		}
	}
	return n
}

// Rule G4: as above, at random instants, again and again in one place.
func TestKillsAtRandomInstants(t *testing.T) {
	t.Parallel()
	kills := 5
	if text := os.Getenv("DLITE_TEST_KILL_INSTANTS"); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		kills = n
	}
	r := newRig(t)
	i := r.install(t, "killed now and then")
	phases := map[string]int{}
	i.start("")
	for range kills {
		to := newVersion
		if i.version() == newVersion {
			to = oldVersion
		}
		i.until("a delegate", func() bool { return i.delegate().State == "ALIVE" })
		i.stage(to, bound)
		instant := rand.N(3500 * time.Millisecond) // a running delegate notices within 2 s
		select {
		case <-time.After(instant):
		case <-i.run.ended:
			require.Fail(t, "the delegate has ended", i.text())
		}
		i.kill()
		j, err := i.place.read()
		require.NoError(t, err)
		phases[j.Phase]++
		i.version()
		i.start("")
		assert.Equal(t, to, i.settled())
	}
	t.Logf("%d kills, by phase: %v", kills, phases)
}

// Rule G4: a new version that cannot do its work never takes the place.
func TestABrokenVersionNeverTakesThePlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, c := range map[string]struct{ server, want string }{
		"ends at once":        {"exit 3", "ended before it registered (exit status 3)"},
		"kills itself":        {"kill -9 $$", "ended before it registered (signal: killed)"},
		"does not register":   {"exec sleep 1000", "did not register within 2s"},
		"says something else": {"echo done >&3; exec sleep 1000", "ended before it registered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			own := newReleases(t)
			own.release(brokenVersion, archiveOf(t, entry{name: "delegate", content: fmt.Sprintf(
				"#!/bin/sh\ncase $1 in version) echo delegate %s;; *) %s;; esac\n", brokenVersion, c.server)}))
			with := *r
			with.releases = own
			i := with.install(t, "broken, "+name)
			i.start("")
			i.until("the registration", func() bool { return i.delegate().Version == oldVersion })
			i.stage(brokenVersion, 2*time.Second)
			assert.Equal(t, oldVersion, i.settled())
			j, err := i.place.read()
			require.NoError(t, err)
			assert.Equal(t, Failed, j.Phase)
			assert.Contains(t, j.Reason, c.want)
			assert.Equal(t, 1, j.Failures)
			assert.NoFileExists(t, i.place.next())
			assert.NoFileExists(t, i.place.previous())
		})
	}
}

// Rule G4: a version that registers in its trial and then ends at each start is replaced by the previous one. A kill
// in the middle of that changes nothing.
func TestACrashLoopEndsWithThePreviousVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, killAt := range []string{"no further step", "rollback", "back", "failed"} {
		t.Run("killed at "+killAt, func(t *testing.T) {
			t.Parallel()
			i := r.install(t, "crashes, killed at "+killAt)
			i.start("probation")
			i.until("the registration", func() bool { return i.delegate().Version == oldVersion })
			i.stage(newVersion, bound)
			i.waitKilled()
			for range maxStarts - 1 {
				require.Equal(t, newVersion, i.version())
				i.start("probation")
				i.waitKilled()
			}
			if killAt != "no further step" {
				i.start(killAt)
				i.waitKilled()
				i.version()
			}
			i.start("probation")
			assert.Equal(t, oldVersion, i.settled())
			j, err := i.place.read()
			require.NoError(t, err)
			assert.Equal(t, "it was started 3 times and did not register", j.Reason)
		})
	}
}
