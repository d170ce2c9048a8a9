package drivertest

import (
	"context"
	"path/filepath"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delegate-io/dlite/driver"
	"github.com/delegate-io/dlite/task/stage"
)

// atEachRecord runs an init and a step once for each record that they make. It calls
// before for each record; at is true for the record of this run. It calls after when
// the init or the step has returned.
func (s *stand) atEachRecord(before func(tx *transaction, r driver.Resource, at bool) (bool, error), after func(tx *transaction, err error)) {
	s.Helper()
	for n := 0; ; n++ {
		tx := s.prepare()
		if s.target.Can.FolderRemoval {
			tx.env.Volumes = []*stage.Volume{hostVolumeAt(filepath.Join(s.TempDir(), "parent", "made"), true, true)}
		}
		tx.ledger.before = func(i int, r driver.Resource) (bool, error) { return before(tx, r, i == n) }
		err := tx.init()
		if err == nil {
			_, err = tx.execute(s.Context(), tx.sh("step", "true"), NewOutput())
		}
		if tx.ledger.count() <= n {
			require.NoError(s, err)
			require.GreaterOrEqual(s, n, 2, "a stage makes at least two records")
			return
		}
		after(tx, err)
	}
}

func ledgerCases() []testCase {
	return []testCase{
		{
			name: "a resource is recorded before it is created", rule: "T2",
			run: func(s *stand) {
				tx := s.prepare()
				if s.target.Can.FolderRemoval {
					tx.env.Volumes = []*stage.Volume{hostVolumeAt(filepath.Join(s.TempDir(), "parent", "made"), true, true)}
				}
				var early, unlabelled []driver.Resource
				tx.ledger.before = func(_ int, r driver.Resource) (bool, error) {
					if !tx.ledger.known(r) && s.site.Has(s, r) {
						early = append(early, r)
					}
					if r.Labels[driver.LabelTransaction] != tx.env.ID {
						unlabelled = append(unlabelled, r)
					}
					return false, nil
				}
				require.NoError(s, tx.init())
				tx.detach(tx.sh("service", "echo up; sleep 600")).WaitFor(s, "up\n")
				require.Empty(s, early, "made before its record")
				require.Empty(s, unlabelled, "without the transaction's label")
				for _, r := range tx.records() {
					require.True(s, s.site.Has(s, r), "%s %s is not there", r.Kind, r.ID)
				}
				tx.cleanup()
				for _, r := range tx.records() {
					require.False(s, s.site.Has(s, r), "%s %s is still there", r.Kind, r.ID)
				}
			},
		},
		{
			name: "a resource that the ledger refuses is not created", rule: "T2",
			run: func(s *stand) {
				var refused driver.Resource
				var known bool
				s.atEachRecord(func(tx *transaction, r driver.Resource, at bool) (bool, error) {
					if !at {
						return false, nil
					}
					refused, known = r, tx.ledger.known(r)
					return false, errRefused
				}, func(tx *transaction, err error) {
					require.ErrorIs(s, err, errRefused)
					if !known {
						require.False(s, s.site.Has(s, refused), "%s %s", refused.Kind, refused.ID)
					}
					require.Empty(s, s.site.Running(s, tx.env.ID))
				})
			},
		},
		{
			name: "a record of a resource that was never created is cleaned up", rule: "T2, T3",
			run: func(s *stand) {
				s.atEachRecord(func(_ *transaction, _ driver.Resource, at bool) (bool, error) {
					if at {
						return true, errRefused
					}
					return false, nil
				}, func(tx *transaction, err error) {
					require.ErrorIs(s, err, errRefused)
					other := tx.inOtherProcess()
					other.cleanup()
					tx.gone()
				})
			},
		},
		{
			name: "a cleanup between a record and its resource prevents the resource", rule: "T3",
			run: func(s *stand) {
				var cleaned chan error
				var condemned []driver.Resource
				s.atEachRecord(func(tx *transaction, r driver.Resource, at bool) (bool, error) {
					if !at {
						return false, nil
					}
					condemned, cleaned = append(tx.records(), r), make(chan error, 1)
					done := make(chan struct{})
					go func() {
						defer close(done)
						_, err := tx.d.Cleanup(context.WithoutCancel(s.Context()), condemned)
						cleaned <- err
					}()
					// The cleanup may return first, or wait for the running call.
					select {
					case <-done:
					case <-time.After(30 * time.Millisecond):
					}
					return false, nil
				}, func(tx *transaction, _ error) {
					require.NoError(s, receive(s, cleaned))
					for _, r := range condemned {
						if r.Kind == condemned[len(condemned)-1].Kind && r.ID == condemned[len(condemned)-1].ID {
							require.False(s, s.site.Has(s, r), "%s %s", r.Kind, r.ID)
						}
					}
				})
			},
		},
		{
			name: "records contain no secrets", rule: "S5, T5",
			run: func(s *stand) {
				tx := s.prepare()
				secret := "hunter2-" + randomHex()
				tx.env.Envs["TOKEN"] = secret
				tx.env.Files = []*stage.File{{Path: "netrc", Data: secret}}
				require.NoError(s, tx.init())
				step := tx.sh("step", `echo "S=$TOKEN" >> $HARNESS_OUTPUT_SECRET_FILE`, secret)
				step.Auth = &stage.Auth{Address: "registry.example.test", Username: "user", Password: secret}
				step.Secrets = []string{secret}
				tx.run(step)
				require.NotEmpty(s, tx.ledger.text())
				require.NotContains(s, tx.ledger.text(), secret)
				require.NotContains(s, string(tx.env.State), secret)
			},
		},
	}
}
