// Package vmtest has a conformance suite for providers of machines (rule D6), and a provider whose
// machines are processes of this host.
//
// A provider's package runs the suite in a test:
//
//	func TestProvider(t *testing.T) {
//		vmtest.TestProvider(t, func(tb testing.TB) vm.Provider { return newProvider(tb) })
//	}
//
// [Processes] is a provider for tests of code that uses machines. A machine is a program with its
// children in separate namespaces. It starts in milliseconds, ends as a whole, and survives the
// process that made it, as virtual machines do. [Records] and [Has] read the records of a pool.
//
// Start reading at provider.go.
package vmtest
