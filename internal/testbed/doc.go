// Package testbed gives tests the real parts that they need: a Docker engine
// with an image that has a shell, a Kubernetes cluster, servers that the project
// talks to, and the certainty that nothing is left behind.
//
//	engine := testbed.Docker(t)
//	engine.LeavesNothing(t, transactionID)
//	step.Image = engine.Image
//
//	cluster := testbed.Kubernetes(t)
//	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig)
//	namespace := cluster.NewNamespace(t)
//
// What a test starts so that it survives a process, as machines survive their
// delegate, lives in a folder that [Keep] knows: a test run that is killed leaves
// none of it.
//
// A test that needs a part which this machine does not have is skipped, loudly.
// The environment variable DLITE_TEST_REQUIRE, a list of parts such as "docker",
// or "all", makes it fail instead.
package testbed
