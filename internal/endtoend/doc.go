// Package endtoend holds the tests that need the whole product at once: managers, delegates
// and the network between them. It exports nothing.
package endtoend
