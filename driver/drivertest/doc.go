// Package drivertest is the conformance suite of drivers (rule D1). It has named
// cases that every [driver.Driver] passes against its real infrastructure. Each
// case cites the rule that it proves.
//
// The package of a driver runs the suite in a test:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Target{
//			Site: func(tb testing.TB) drivertest.Site { return newSite(tb) },
//			Step: func(step *stage.Step) { step.Image = "busybox:1" },
//			Can:  drivertest.Capabilities{Mounts: true, Users: true},
//		})
//	}
//
// If an infrastructure does not support a feature, its Target omits the
// capability; cases never decide this themselves. After each case, the [Site]
// inspects the infrastructure itself, and nothing of the transactions of the case
// may remain. mutations.md lists the defects that make each case fail.
//
// Start reading at drivertest.go; the cases are in cases_*.go.
package drivertest
