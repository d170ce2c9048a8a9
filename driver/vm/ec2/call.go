package ec2

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
)

// attempts is the minimum number of attempts of a call. EC2 throttles an account as a whole, and a
// pool that fills up makes many calls.
const attempts = 8

// retryPolicy configures the retries of a call.
func retryPolicy(o *ec2.Options) {
	r := o.Retryer
	if n := r.MaxAttempts(); n > 0 && n < attempts {
		r = retry.AddWithMaxAttempts(r, attempts)
	}
	if r, ok := r.(aws.RetryerV2); ok {
		o.Retryer = capacityRetryer{r}
	}
}

// capacityRetryer does not retry after a lack of capacity, although its status is 500: another
// subnet is more promising.
type capacityRetryer struct{ aws.RetryerV2 }

// IsErrorRetryable implements [aws.Retryer].
func (d capacityRetryer) IsErrorRetryable(err error) bool {
	return !noRoom(err) && d.RetryerV2.IsErrorRetryable(err)
}

// capacityCodes are the error codes for which another subnet or a later attempt may succeed.
var capacityCodes = []string{
	"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity", "InsufficientCapacity",
	"InsufficientFreeAddressesInSubnet", "InsufficientAddressCapacity", "InsufficientVolumeCapacity",
	"Unsupported", // the type is not available in the zone
	"SpotMaxPriceTooLow", "MaxSpotInstanceCountExceeded",
	"InstanceLimitExceeded", "VcpuLimitExceeded", "VolumeLimitExceeded",
}

func noRoom(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(capacityCodes, api.ErrorCode())
}

// call limits the time of a call.
func (p *ec2Provider) call(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout)
	defer cancel()
	return f(ctx)
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: aws.String(name), Values: values}
}

// instances returns the EC2 instances with an id, in any state. There is at most one, unless a
// user has copied tags.
func (p *ec2Provider) instances(ctx context.Context, id string) ([]types.Instance, error) {
	return p.describe(ctx, filter("tag:"+tagID, id))
}

func (p *ec2Provider) describe(ctx context.Context, filters ...types.Filter) ([]types.Instance, error) {
	var all []types.Instance
	pages := ec2.NewDescribeInstancesPaginator(p.cfg.Client, &ec2.DescribeInstancesInput{Filters: filters, MaxResults: aws.Int32(500)})
	for pages.HasMorePages() {
		err := p.call(ctx, func(ctx context.Context) error {
			page, err := pages.NextPage(ctx, retryPolicy)
			if err == nil {
				all = append(all, gather(page)...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func gather(page *ec2.DescribeInstancesOutput) []types.Instance {
	var all []types.Instance
	for _, r := range page.Reservations {
		all = append(all, r.Instances...)
	}
	return all
}

// bounded is a client with limited calls, for the SDK's waiter.
type bounded struct{ *ec2Provider }

// DescribeInstances implements [ec2.DescribeInstancesAPIClient].
func (b bounded) DescribeInstances(ctx context.Context, in *ec2.DescribeInstancesInput, options ...func(*ec2.Options)) (out *ec2.DescribeInstancesOutput, err error) {
	err = b.call(ctx, func(ctx context.Context) error {
		out, err = b.cfg.Client.DescribeInstances(ctx, in, options...)
		return err
	})
	return out, err
}

// errTimeout is the error of a wait that took too long.
var errTimeout = errors.New("timed out")

// await polls the instances of an id until done returns true or an error.
func (p *ec2Provider) await(ctx context.Context, limit time.Duration, id string, done func([]types.Instance) (bool, error)) error {
	var failed error
	waiter := ec2.NewInstanceExistsWaiter(bounded{p}, func(o *ec2.InstanceExistsWaiterOptions) {
		o.MinDelay, o.MaxDelay = p.cfg.Poll, 5*p.cfg.Poll
		o.ClientOptions = []func(*ec2.Options){retryPolicy}
		o.Retryable = func(_ context.Context, _ *ec2.DescribeInstancesInput, out *ec2.DescribeInstancesOutput, err error) (bool, error) {
			if err == nil {
				var ok bool
				if ok, err = done(gather(out)); ok {
					return false, nil
				}
			}
			failed = err
			return err == nil, err
		}
	})
	// One machine fits on one page.
	err := waiter.Wait(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{filter("tag:"+tagID, id)}}, limit)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case failed != nil && !errors.Is(failed, context.DeadlineExceeded):
		return failed
	}
	return fmt.Errorf("%w: more than %v", errTimeout, limit)
}
