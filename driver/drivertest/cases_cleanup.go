package drivertest

import (
	"context"
	"maps"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
)

func cleanupCases() []testCase {
	return []testCase{
		{
			name: "a cleanup removes all resources of a transaction", rule: "T2, T3",
			run: func(s *stand) {
				tx := s.begin(withVolumes(temp("data", ""), temp("ram", "memory")))
				tx.out("echo x > file; seq 1 100 > $HARNESS_SCRATCH_DIR/numbers")
				tx.detach(tx.sh("service", "echo up; sleep 600")).WaitFor(s, "up\n")
				require.NotEmpty(s, s.site.Remains(s, tx.env.ID))
				tx.runs()
				tx.cleanup()
				tx.gone()
			},
		},
		{
			name: "a cleanup may be repeated", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("true")
				for range 3 {
					tx.cleanup()
				}
				tx.inOtherProcess().cleanup()
			},
		},
		{
			name: "a cleanup may run without an init", rule: "T3",
			run: func(s *stand) {
				tx := s.prepare()
				tx.cleanup()
				require.NoError(s, tx.init())
				tx.out("true")
			},
		},
		{
			name: "another process needs only the records for a cleanup", rule: "T2, T3",
			run: func(s *stand) {
				tx := s.begin(withVolumes(temp("data", "")))
				tx.detach(tx.sh("service", tree+"echo up; wait")).WaitFor(s, "up\n")
				r := tx.start(tx.sh("step", tree+"echo up; wait"))
				r.out.WaitFor(s, "up\n")
				tx.inOtherProcess().cleanup()
				require.Empty(s, s.site.Running(s, tx.env.ID))
				_ = r.wait() // any result is allowed
				tx.cleanup()
				tx.gone()
			},
		},
		{
			name: "a cleanup during a step ends it", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				r := tx.start(tx.sh("step", tree+"echo started; wait"))
				r.out.WaitFor(s, "started")
				tx.cleanup()
				require.Empty(s, s.site.Running(s, tx.env.ID))
				if end := r.wait(); end.err == nil {
					require.NotZero(s, end.res.ExitCode, "it was killed and did not succeed")
				}
			},
		},
		{
			name: "two cleanups may run at once", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				tx.detach(tx.sh("service", tree+"echo up; wait")).WaitFor(s, "up\n")
				done := make(chan error, 2)
				for range 2 {
					go func() {
						_, err := tx.d.Cleanup(context.WithoutCancel(s.Context()), tx.records())
						done <- err
					}()
				}
				require.NoError(s, receive(s, done))
				require.NoError(s, receive(s, done))
				tx.gone()
			},
		},
		{
			name: "a cleanup that times out returns the remaining resources", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("true")
				ctx, cancel := context.WithCancel(s.Context())
				cancel()
				left, err := tx.d.Cleanup(ctx, tx.records())
				require.Error(s, err)
				require.ElementsMatch(s, tx.records(), left)
				tx.cleanupOf(left)
				tx.gone()
			},
		},
		{
			name: "a cleanup of nothing removes nothing", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				tx.detach(tx.sh("service", "echo up; sleep 600")).WaitFor(s, "up\n")
				before := s.site.Remains(s, tx.env.ID)
				tx.cleanupOf(nil)
				tx.cleanupOf([]driver.Resource{})
				require.ElementsMatch(s, before, s.site.Remains(s, tx.env.ID))
				tx.runs()
			},
		},
		{
			name: "a cleanup skips unknown records and removes the rest", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("true")
				strange := driver.Resource{Kind: "drivertest-strange", ID: "x"}
				left, err := tx.d.Cleanup(s.Context(), append([]driver.Resource{strange}, tx.records()...))
				require.ErrorContains(s, err, "drivertest-strange")
				require.Equal(s, []driver.Resource{strange}, left)
				tx.gone()
			},
		},
		{
			name: "a cleanup skips records without an id", rule: "T3",
			run: func(s *stand) {
				tx := s.begin()
				tx.detach(tx.sh("service", "echo up; sleep 600")).WaitFor(s, "up\n")
				before := s.site.Remains(s, tx.env.ID)
				var withoutID []driver.Resource
				for _, r := range tx.records() {
					withoutID = append(withoutID, driver.Resource{Kind: r.Kind, Labels: r.Labels})
				}
				_, _ = tx.d.Cleanup(s.Context(), withoutID) // the driver may return them or count them as removed
				require.ElementsMatch(s, before, s.site.Remains(s, tx.env.ID))
				tx.runs()
			},
		},
		{
			name: "a cleanup does not affect other transactions", rule: "T8",
			run: func(s *stand) {
				tx, other := s.begin(), s.begin()
				out := other.detach(other.sh("service", "echo up; while [ ! -e go ]; do sleep 0.05; done; echo went; sleep 600"))
				out.WaitFor(s, "up\n")
				tx.out("true")
				before := s.site.Remains(s, other.env.ID)
				tx.cleanup()
				require.ElementsMatch(s, before, s.site.Remains(s, other.env.ID))
				other.out("touch go")
				out.WaitFor(s, "went\n")
			},
		},
		{
			name: "a cleanup removes files whatever their mode", rule: "T2",
			run: func(s *stand) {
				tx := s.begin()
				tx.out(`mkdir -p a/b/c; echo x > a/b/c/f; mkfifo p; ln -s / root; ln -s nowhere dangling; chmod 000 a/b/c; chmod 500 a/b a; [ ! -O . ] || chmod 000 .`)
				tx.cleanup()
				tx.gone()
			},
		},
		{
			name: "a step before the init is refused", rule: "T4",
			run: func(s *stand) {
				tx := s.prepare()
				out, _ := tx.fails(tx.sh("step", "echo RAN"))
				require.Empty(s, out)
				require.Zero(s, tx.ledger.count())
			},
		},
		{
			name: "a step after the cleanup is refused and creates nothing", rule: "T4",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("true")
				tx.cleanup()
				out, _ := tx.fails(tx.sh("step", "echo RAN"))
				require.NotContains(s, out, "RAN")
				tx.gone()
			},
		},
		{
			name: "a second init finds the resources of the first one", rule: "T3, T5",
			run: func(s *stand) {
				tx := s.begin()
				tx.out("echo kept > file")
				require.NoError(s, tx.init())
				require.Equal(s, "kept\n", tx.out("cat file"))
			},
		},
		{
			name: "a restarted driver continues a transaction", rule: "T5",
			run: func(s *stand) {
				tx := s.begin(withVolumes(temp("data", "")))
				tx.out("echo kept > file")
				s.shares(tx, "data")
				other := tx.inOtherProcess()
				require.Equal(s, "kept\n", other.out("cat file"))
				s.shares(other, "data")
				other.cleanup()
				tx.gone()
			},
		},
		{
			name: "resources are found by their labels and can be removed", rule: "T2", needs: Capabilities{Labels: true},
			run: func(s *stand) {
				tx, other := s.begin(), s.begin()
				for _, one := range []*transaction{tx, other} {
					one.detach(one.sh("service", "echo up; sleep 600")).WaitFor(s, "up\n")
				}
				finder := s.driver().(driver.Finder)
				found, err := finder.Find(s.Context(), maps.Clone(tx.env.Labels))
				require.NoError(s, err)
				require.NotEmpty(s, found)
				tx.cleanupOf(found)
				require.Empty(s, s.site.Running(s, tx.env.ID))
				other.runs()
				found, err = finder.Find(s.Context(), maps.Clone(tx.env.Labels))
				require.NoError(s, err)
				require.Empty(s, found)
			},
		},
		{
			name: "empty and foreign labels find nothing", rule: "T2", needs: Capabilities{Labels: true},
			run: func(s *stand) {
				tx := s.begin()
				tx.detach(tx.sh("service", "echo up; sleep 600")).WaitFor(s, "up\n")
				finder := s.driver().(driver.Finder)
				for name, labels := range map[string]map[string]string{
					"none": nil, "an empty value": {driver.LabelDelegate: ""}, "an empty name": {"": "drivertest"},
					"one empty of two":   {driver.LabelTransaction: tx.env.ID, driver.LabelDelegate: ""},
					"another delegate's": {driver.LabelTransaction: tx.env.ID, driver.LabelDelegate: "another"},
				} {
					found, err := finder.Find(s.Context(), labels)
					require.NoError(s, err)
					require.Empty(s, found, name)
				}
			},
		},
	}
}
