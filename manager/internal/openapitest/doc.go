// Package openapitest compares the description of the API (package manager/api) with the handlers and types of a server.
// Each server of the description has a test that uses it.
package openapitest
