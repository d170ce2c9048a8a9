//go:build !race

package endtoend_test

const raceEnabled = false
