// `linear backward` of S2Train in Verilog: dx[n, m] = sum over o of dy[n, o] * w[o, m], and zero where a mask is zero.
//
// Products of two fp16 numbers are exact in fp32; they are added one by one to an fp32 sum that begins with +0, each sum
// rounded to nearest even; the result is rounded to fp16 once. That is what docs/s2train-isa.md defines, bit for bit.
// Subnormal fp32 numbers do not come up: every sum is a multiple of 2^-48.

module linear_backward #(parameter SIZE = 65536) (input clock, input start, output reg done);
  integer samples, outputs, inputs;        // of dy[samples, outputs], w[outputs, inputs], dx[samples, inputs]
  reg masked;
  reg [15:0] dy [0:SIZE-1];
  reg [15:0] w [0:SIZE-1];
  reg [7:0] mask [0:SIZE-1];               // a bit for each element of dx, the lowest bit of a byte first
  reg [15:0] dx [0:SIZE-1];

  integer n, m, o, at;
  reg [31:0] sum;

  function [31:0] product(input [15:0] a, input [15:0] b);
    reg sign;
    reg [21:0] p;
    integer exponent, k;
    begin
      sign = a[15] ^ b[15];
      if ((a[14:10] == 31 && a[9:0] != 0) || (b[14:10] == 31 && b[9:0] != 0) ||
          (a[14:10] == 31 && b[14:0] == 0) || (b[14:10] == 31 && a[14:0] == 0))
        product = 32'h7FC00000;
      else if (a[14:10] == 31 || b[14:10] == 31)
        product = {sign, 8'hFF, 23'd0};
      else if (a[14:0] == 0 || b[14:0] == 0)
        product = {sign, 31'd0};
      else begin
        p = {11'd0, a[14:10] != 0, a[9:0]} * {11'd0, b[14:10] != 0, b[9:0]};
        exponent = (a[14:10] == 0 ? 1 : a[14:10]) + (b[14:10] == 0 ? 1 : b[14:10]) + 77;
        k = 21;
        while (!p[k]) k = k - 1;
        exponent = exponent + k;
        product[31] = sign;
        product[30:23] = exponent[7:0];
        product[22:0] = {1'b0, p} << (23 - k);
      end
    end
  endfunction

  function [31:0] added(input [31:0] x, input [31:0] y);
    reg [31:0] a, b;                       // a has the larger magnitude
    reg [27:0] upper, lower, total;          // carry, 24 bits, three more to round by
    reg sticky;
    integer exponent, distance, k;
    begin
      a = x[30:0] >= y[30:0] ? x : y;
      b = x[30:0] >= y[30:0] ? y : x;
      if (a[30:23] == 255)
        added = a[22:0] != 0 || (b[30:23] == 255 && a[31] != b[31]) ? 32'h7FC00000 : a;
      else if (b[30:0] == 0)
        added = a[30:0] == 0 ? {a[31] & b[31], 31'd0} : a;
      else begin
        exponent = a[30:23];
        distance = a[30:23] - b[30:23];
        upper = {2'b01, a[22:0], 3'b000};
        lower = {2'b01, b[22:0], 3'b000};
        sticky = 0;
        for (k = 0; k < 28; k = k + 1)
          if (k < distance) begin
            sticky = sticky | lower[0];
            lower = lower >> 1;
          end
        if (distance >= 28) sticky = 1;
        lower[0] = lower[0] | sticky;
        total = a[31] == b[31] ? upper + lower : upper - lower;
        if (total == 0)
          added = 32'd0;
        else begin
          if (total[27]) begin
            total = {1'b0, total[27:2], total[1] | total[0]};
            exponent = exponent + 1;
          end
          for (k = 0; k < 27; k = k + 1)
            if (!total[26]) begin
              total = total << 1;
              exponent = exponent - 1;
            end
          if (total[2] && (total[1] || total[0] || total[3])) total = total + 28'd8;
          if (total[27]) begin
            total = total >> 1;
            exponent = exponent + 1;
          end
          added = {a[31], exponent[7:0], total[25:3]};
        end
      end
    end
  endfunction

  function [15:0] rounded(input [31:0] x);
    reg [23:0] digits;
    reg [15:0] kept;
    reg rest, half;
    integer exponent, shift, k;
    begin
      if (x[30:23] == 255 && x[22:0] != 0)
        rounded = 16'h7E00;
      else if (x[30:0] == 0)
        rounded = {x[31], 15'd0};
      else begin
        exponent = x[30:23] - 127;
        if (exponent > 15)
          rounded = {x[31], 15'h7C00};
        else begin
          digits = {1'b1, x[22:0]};
          shift = exponent < -14 ? 13 - 14 - exponent : 13;
          rest = 0;
          half = 0;
          for (k = 0; k < 40; k = k + 1)
            if (k < shift) begin
              rest = rest | half;
              half = digits[0];
              digits = digits >> 1;
            end
          if (shift >= 40) begin
            rest = 1;
            half = 0;
          end
          kept = digits[15:0];
          if (half && (rest || kept[0])) kept = kept + 1;
          if (exponent >= -14) kept = kept + ((exponent + 14) << 10);
          rounded = {x[31], kept[14:0]};   // a carry goes into the exponent, up to infinity
        end
      end
    end
  endfunction

  always @(posedge clock)
    if (start) begin
      n <= 0;
      m <= 0;
      o <= 0;
      sum <= 0;
      done <= 0;
    end else if (!done) begin
      sum <= added(sum, product(dy[n * outputs + o], w[o * inputs + m]));
      if (o + 1 < outputs)
        o <= o + 1;
      else begin
        at = n * inputs + m;
        if (masked && !mask[at / 8][at % 8])
          dx[at] <= 0;
        else
          dx[at] <= rounded(added(sum, product(dy[n * outputs + o], w[o * inputs + m])));
        sum <= 0;
        o <= 0;
        m <= m + 1 < inputs ? m + 1 : 0;
        if (m + 1 == inputs) n <= n + 1;
        done <= m + 1 == inputs && n + 1 == samples;
      end
    end
endmodule

// Runs the unit once on files of `dlc run --dump`:
//   vvp bench +samples=2 +outputs=5 +inputs=6 +src0=src0.hex +src1=src1.hex [+mask=mask.hex]
//             [+golden=dst0.out.hex] [+dst0=made.hex]
module bench;
  reg clock = 0, start = 1;
  wire done;
  integer count, k, wrong;
  reg [8*256-1:0] name;
  reg [15:0] golden [0:65535];
  linear_backward unit (clock, start, done);
  always #1 clock = ~clock;

  initial begin
    if (!$value$plusargs("samples=%d", unit.samples) || !$value$plusargs("outputs=%d", unit.outputs)
        || !$value$plusargs("inputs=%d", unit.inputs)) begin
      $display("+samples, +outputs and +inputs are needed");
      $finish;
    end
    count = unit.samples * unit.inputs;
    if (count > 65536 || unit.outputs * unit.inputs > 65536 || unit.samples * unit.outputs > 65536) begin
      $display("more than 65536 elements");
      $finish;
    end
    if ($value$plusargs("src0=%s", name)) $readmemh(name, unit.dy, 0, unit.samples * unit.outputs - 1);
    if ($value$plusargs("src1=%s", name)) $readmemh(name, unit.w, 0, unit.outputs * unit.inputs - 1);
    unit.masked = 0;
    if ($value$plusargs("mask=%s", name)) begin
      unit.masked = 1;
      $readmemh(name, unit.mask, 0, (count + 7) / 8 - 1);
    end
    @(negedge clock) @(negedge clock) start = 0;
    wait (done);
    @(negedge clock);
    if ($value$plusargs("dst0=%s", name)) $writememh(name, unit.dx, 0, count - 1);
    if ($value$plusargs("golden=%s", name)) begin
      $readmemh(name, golden, 0, count - 1);
      wrong = 0;
      for (k = 0; k < count; k = k + 1)
        if (unit.dx[k] !== golden[k]) begin
          if (wrong == 0) $display("element %0d is %h, the dump has %h", k, unit.dx[k], golden[k]);
          wrong = wrong + 1;
        end
      $display("%0d of %0d elements differ", wrong, count);
    end
    $finish;
  end
endmodule
