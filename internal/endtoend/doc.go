// Package endtoend holds tests that need the whole product at once: manager,
// delegates and everything between. It exports nothing.
package endtoend
