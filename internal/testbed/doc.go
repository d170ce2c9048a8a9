// Package testbed gives tests the real parts that they need: a Docker engine
// with an image that has a shell, and the certainty that nothing is left behind.
//
//	engine := testbed.Docker(t)
//	engine.LeavesNothing(t, transactionID)
//	step.Image = engine.Image
//
// A test that needs a part which this machine does not have is skipped, loudly.
// The environment variable DLITE_TEST_REQUIRE, a list of parts such as "docker",
// or "all", makes it fail instead.
package testbed
