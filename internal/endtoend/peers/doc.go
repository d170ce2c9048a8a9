// Package peers has the tests and benchmarks in which a part of the SDK works with
// the manager or its log service. They are here because the SDK's module does not
// require the manager's.
package peers
