// Package vmtest is the conformance suite of the machines' providers (SPEC D6),
// and a provider whose machines are processes of this host.
//
// A provider's package runs the suite in a test:
//
//	func TestProvider(t *testing.T) {
//		vmtest.TestProvider(t, func(tb testing.TB) vm.Provider { return newProvider(tb) })
//	}
//
// [Processes] is for tests of what uses machines: a program and its children in
// namespaces of their own, which come and go in milliseconds, end together, and
// survive the process that made them, as virtual machines do. [Records] and [Has]
// look at what a pool has on record.
//
// Start reading at provider.go.
package vmtest
