// Package chaos holds no code, only a test of managers, stores and delegates that
// are killed, paused and cut off at random while thousands of stages run. Start
// reading at chaos_linux_test.go; `make chaos` runs it in its long form.
package chaos
