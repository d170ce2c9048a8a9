// Package drivertest is the conformance suite of drivers (SPEC D1): named cases
// that every [driver.Driver] passes against its real infrastructure. Each names
// the rule that it proves.
//
// A driver's package runs it in a test:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Target{
//			Site: func(tb testing.TB) drivertest.Site { return newSite(tb) },
//			Step: func(step *stage.Step) { step.Image = "busybox:1" },
//			Can:  []drivertest.Capability{drivertest.Mounts, drivertest.Users},
//		})
//	}
//
// What an infrastructure cannot do is declared as a missing [Capability] and
// never decided by a case. What is left behind is looked for by the [Site], on
// the infrastructure itself: after each case nothing of its transactions may
// remain. mutations.md lists which defect makes which case fail.
//
// Start reading at drivertest.go; the cases are in cases_*.go.
package drivertest
