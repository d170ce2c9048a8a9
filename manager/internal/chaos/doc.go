// Package chaos contains only a test. It kills, pauses and disconnects managers,
// stores and delegates at random while thousands of stages run. Start reading at
// chaos_linux_test.go. `make chaos` runs the long form.
package chaos
