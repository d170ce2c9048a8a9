// Package testbed gives tests the real parts that they need: a Docker engine with an image
// that has a shell, a Kubernetes cluster, and the servers that the project talks to. It checks
// that tests leave no resource.
//
//	engine := testbed.Docker(t)
//	engine.LeavesNothing(t, transactionID)
//	step.Image = engine.Image
//
//	cluster := testbed.Kubernetes(t)
//	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig)
//	namespace := cluster.NewNamespace(t)
//
// Some processes of a test must survive their parent, as machines survive their delegate. They
// run in a directory that the test passes to [Keep], so that a killed test run leaves none of
// them.
//
// A test that needs a part which this machine does not have is skipped with a message. The
// environment variable DLITE_TEST_REQUIRE, a list of parts such as "docker", or "all", makes
// it fail instead. Start reading at docker.go and kubernetes.go.
package testbed
