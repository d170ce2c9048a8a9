// Package recorded is what drivers share that record what they are about to make:
// names that are told from everybody else's, so that nothing else is removed, and
// a [Gate] that keeps a cleanup from overtaking what is recorded but not made yet
// (SPEC T3).
//
//	name := recorded.NewName(env.ID)
//	r := driver.Resource{Kind: "container", ID: name}
//	err := d.gate.Create(ctx, ledger, r, func() error { return d.start(ctx, name) })
//
// and in a cleanup, before anything is looked for:
//
//	err := d.gate.Condemn(ctx, resources)
//
// Start reading at gate.go.
package recorded
