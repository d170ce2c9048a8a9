// Package imds watches the metadata service of a cloud machine for notices that the cloud takes the machine away.
package imds
