// Package peers holds the tests and benchmarks that use a part of the SDK with the manager or
// its log service. They are here because the SDK's module must not require the manager's
// module.
package peers
