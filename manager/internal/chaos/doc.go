// Package chaos contains only tests. They kill, pause and disconnect managers, stores,
// delegates and pipeline services at random while thousands of stages and runs of
// pipelines are active. Start reading at chaos_linux_test.go, then runs_linux_test.go.
// `make chaos` runs the long form.
package chaos
