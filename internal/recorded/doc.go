// Package recorded is for drivers that record a resource before they create it. It has names that
// identify the driver's resources, so that a cleanup removes nothing else. A [Gate] keeps a cleanup
// from running between the record and the creation (rule T3).
//
//	name := recorded.NewName(env.ID)
//	r := driver.Resource{Kind: "container", ID: name}
//	err := d.gate.Create(ctx, ledger, r, func() error { return d.start(ctx, name) })
//
// At the beginning of a cleanup:
//
//	err := d.gate.Block(ctx, resources)
//
// Start reading at gate.go.
package recorded
