package client

// LookAlways makes a client look at its certificates' files at every request.
func LookAlways() Option { return func(c *config) { c.checkEvery = 0 } }
