package drone

import "time"

// SetMinute replaces the unit of the time-outs of repositories.
func (c *Client) SetMinute(d time.Duration) { c.minute = d }

// SetWatchEvery replaces the time between the begins of two watches.
func (c *Client) SetWatchEvery(d time.Duration) { c.watchEvery = d }

// Prefix returns the beginning of the names of the files and tasks of the client.
func (c *Client) Prefix() string { return c.prefix }
