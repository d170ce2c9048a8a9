//go:build race

package endtoend_test

const raceEnabled = true
