// Package pagetest tests the page of a manager in a real Chromium, against a real manager, pipeline service, log service and
// delegate.
package pagetest
