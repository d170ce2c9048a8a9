// Package steps is the part of a driver that host steps and container steps share: the directories of
// a transaction, volumes, the files through which a step hands on values, test reports, services and
// their readiness, and the order of a cleanup. Packages host and docker run the steps:
//
//	d, err := steps.New(cfg)
//	if err != nil {
//		return err
//	}
//	d.AddCleaner(func() steps.Cleaner { return &cleanup{} })
//	res, err := d.Execute(ctx, env, step, out, ledger, backend)
//
// Start reading at driver.go.
package steps
